#include "model/convert/random_values.h"

#include <cmath>

#include "tensor/float_formats.h"

namespace deepinfer {
namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;

constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::array<float, 4096> make_normal_table() {
  std::array<float, 4096> table{};
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<float>(
        normal_quantile((static_cast<double>(i) + 0.5) / static_cast<double>(table.size())));
  }
  return table;
}

template <class Encode>
std::array<std::uint8_t, 256> normal_codes(double deviation, Encode encode) {
  std::array<std::uint8_t, 256> codes{};
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes[i] = encode(static_cast<float>(deviation * normal_quantile((static_cast<double>(i) + 0.5) / 256)));
  }
  return codes;
}

}  // namespace

RandomBits::RandomBits(std::uint64_t seed, std::string_view name) : state_(mix(seed + kGolden)) {
  for (const char c : name) state_ = mix(state_ ^ static_cast<std::uint8_t>(c)) + kGolden;
}

std::uint64_t RandomBits::at(std::uint64_t i) const {
  return mix(state_ + (i + 1) * kGolden);
}

std::uint64_t RandomBits::next() {
  return mix(state_ += kGolden);
}

std::uint64_t RandomBits::below(std::uint64_t bound) {
  return (next() >> 32) * bound >> 32;
}

double normal_quantile(double p) {
  double low = -9, high = 9;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

float heavy_normal(std::uint64_t bits) {
  static const std::array<float, 4096> table = make_normal_table();
  const float x = table[bits & 4095u];
  return (bits >> 12 & 511u) == 0 ? 8.0f * x : x;
}

std::array<std::uint8_t, 256> e4m3_normal_codes(double deviation) {
  return normal_codes(deviation, f32_to_e4m3);
}
std::array<std::uint8_t, 256> e2m1_normal_codes(double deviation) {
  return normal_codes(deviation, f32_to_e2m1);
}

}  // namespace deepinfer
