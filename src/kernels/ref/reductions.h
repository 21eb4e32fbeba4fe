// The fixed-order sums of ops.h, in scalar form.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace deepinfer::ref {

inline constexpr std::int64_t kLanes = 16;

/// Adds the partial sums 8, 4, 2 and 1 apart.
inline float sum_lanes(std::array<float, kLanes> lanes) {
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

/// Σ a_i b_i over n elements.
inline float dot(const float* a, const float* b, std::int64_t n) {
  std::array<float, kLanes> lanes{};
  for (std::int64_t i = 0; i < n; ++i) {
    float& lane = lanes[static_cast<std::size_t>(i % kLanes)];
    lane = std::fma(a[i], b[i], lane);
  }
  return sum_lanes(lanes);
}

}  // namespace deepinfer::ref
