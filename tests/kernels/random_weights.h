// Random weights and activations for kernel tests: heavy-tailed values, scales over many binades, seeded.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/cpu/pack.h"
#include "kernels/weight.h"
#include "tensor/float_formats.h"

namespace deepinfer::test {

inline std::size_t zu(std::int64_t v) {
  return static_cast<std::size_t>(v);
}

/// Values of a t-distribution with 3 degrees of freedom, the shape of real activations: a few are ten times
/// the rest.
inline std::vector<float> random_values(std::mt19937& rng, std::int64_t count, float scale = 1.0f) {
  std::student_t_distribution<float> draw(3.0f);
  std::vector<float> x(zu(count));
  for (float& v : x) v = draw(rng) * scale;
  return x;
}

/// A weight that owns its bytes, stored and packed.
struct OwnedWeight {
  std::vector<std::uint8_t> data, scale;
  cpu::PackedMemory packed;
  Weight view;  ///< both forms
};

/// `wide_scales`: multipliers from 2^-100 to 2^100 instead of the 2^-8 to 2^1 of trained weights.
inline OwnedWeight random_weight(std::mt19937& rng, WeightFormat format, std::int64_t n, std::int64_t k,
                                 bool wide_scales = false) {
  OwnedWeight w;
  w.view.format = format;
  w.view.n = n;
  w.view.k = k;
  const auto random_scale = [&] {
    return static_cast<std::uint8_t>(wide_scales ? std::uniform_int_distribution<int>(27, 227)(rng)
                                                 : std::uniform_int_distribution<int>(119, 128)(rng));
  };
  switch (format) {
    case WeightFormat::kF32: {
      const std::vector<float> values = random_values(rng, n * k, 0.05f);
      w.data.resize(zu(4 * n * k));
      std::copy_n(reinterpret_cast<const std::uint8_t*>(values.data()), w.data.size(), w.data.data());
      break;
    }
    case WeightFormat::kBf16: {
      const std::vector<float> values = random_values(rng, n * k, 0.05f);
      w.data.resize(zu(2 * n * k));
      auto* out = reinterpret_cast<std::uint16_t*>(w.data.data());
      for (std::size_t i = 0; i < values.size(); ++i) out[i] = f32_to_bf16(values[i]);
      break;
    }
    case WeightFormat::kFp8: {
      w.view.scale_block = rng() % 2 == 0 ? 32 : 128;
      w.data.resize(zu(n * k));
      for (std::uint8_t& code : w.data) {
        do code = static_cast<std::uint8_t>(rng());
        while ((code & 0x7f) == kE4m3Nan);
      }
      const std::int64_t b = w.view.scale_block;
      w.scale.resize(zu((n + b - 1) / b * ((k + b - 1) / b)));
      for (std::uint8_t& s : w.scale) s = random_scale();
      break;
    }
    case WeightFormat::kFp4: {
      w.data.resize(zu(n * k / 2));
      for (std::uint8_t& code : w.data) code = static_cast<std::uint8_t>(rng());
      w.scale.resize(zu(n * k / 32));
      for (std::uint8_t& s : w.scale) s = random_scale();
      break;
    }
  }
  w.view.data = w.data.data();
  w.view.scale = w.scale.empty() ? nullptr : w.scale.data();
  w.packed = cpu::PackedMemory(cpu::packed_size_bytes(w.view));
  w.view = cpu::pack_weight(w.view, w.packed.bytes(), nullptr);
  return w;
}

/// W[n][k] in double.
inline double weight_value(const Weight& w, std::int64_t n, std::int64_t k) {
  switch (w.format) {
    case WeightFormat::kF32:
      return reinterpret_cast<const float*>(w.data)[n * w.k + k];
    case WeightFormat::kBf16:
      return bf16_to_f32(reinterpret_cast<const std::uint16_t*>(w.data)[n * w.k + k]);
    case WeightFormat::kFp8: {
      const std::int64_t columns = (w.k + w.scale_block - 1) / w.scale_block;
      const double s = ue8m0_to_f32(w.scale[n / w.scale_block * columns + k / w.scale_block]);
      return s * static_cast<double>(e4m3_to_f32(w.data[n * w.k + k]));
    }
    case WeightFormat::kFp4: {
      const std::uint8_t byte = w.data[(n * w.k + k) / 2];
      const double s = ue8m0_to_f32(w.scale[(n * w.k + k) / 32]);
      return s *
             static_cast<double>(e2m1_to_f32(static_cast<std::uint8_t>(k % 2 == 0 ? byte & 15 : byte >> 4)));
    }
  }
  return 0;
}

/// Index of the first element whose bits differ, or -1. NaNs are equal to each other.
inline std::int64_t first_difference(std::span<const float> a, std::span<const float> b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]))
      return static_cast<std::int64_t>(i);
  }
  return a.size() == b.size() ? -1 : static_cast<std::int64_t>(std::min(a.size(), b.size()));
}

}  // namespace deepinfer::test
