#include "model/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace deepinfer {
namespace {

// theta^(-2i/rope_dim) with the roundings of an fp32 computation (exponent, power, reciprocal): at position
// 10^6 one unit in the last place of a frequency is an angle of 0.06.
float frequency(double theta, std::int64_t i, std::int64_t rope_dim) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope_dim);
  return 1.0f / static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
}

}  // namespace

std::vector<float> plain_rope_frequencies(const ModelConfig& config) {
  std::vector<float> f;
  for (std::int64_t i = 0; i < config.rope_dim / 2; ++i) {
    f.push_back(frequency(config.rope_theta, i, config.rope_dim));
  }
  return f;
}

std::vector<float> compressed_rope_frequencies(const ModelConfig& config) {
  const auto dim = static_cast<double>(config.rope_dim);
  double low = 0, high = 0;
  if (config.yarn) {
    // The channel whose wave turns n times over the original context.
    const auto channel = [&](double turns) {
      return dim *
             std::log(static_cast<double>(config.yarn->original_max_positions) /
                      (turns * 2 * std::numbers::pi)) /
             (2 * std::log(config.compress_rope_theta));
    };
    low = std::max(std::floor(channel(config.yarn->beta_fast)), 0.0);
    high = std::min(std::ceil(channel(config.yarn->beta_slow)), dim - 1);
  }
  std::vector<float> f;
  for (std::int64_t i = 0; i < config.rope_dim / 2; ++i) {
    const float base = frequency(config.compress_rope_theta, i, config.rope_dim);
    if (!config.yarn) {
      f.push_back(base);
      continue;
    }
    const auto ramp =
        static_cast<float>(std::clamp((static_cast<double>(i) - low) / std::max(high - low, 1e-3), 0.0, 1.0));
    const float keep = 1.0f - ramp;
    f.push_back(base / static_cast<float>(config.yarn->factor) * (1.0f - keep) + base * keep);
  }
  return f;
}

}  // namespace deepinfer
