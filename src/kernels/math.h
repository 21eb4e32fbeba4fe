// Scalar functions with one definition everywhere: no libm, no contraction, so the same bits on every
// machine. The vectorised kernels use the same formulas lane by lane. At most 2 ulp from the exact value
// (tests/kernels/math_test.cc).
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace deepinfer {

// exp(x) = 2^n * exp(r): n = round(x / ln 2), |r| <= ln 2 / 2, exp(r) by its Taylor polynomial of degree 7.
inline constexpr float kExpMin = -104.0f;    // below: 0
inline constexpr float kExpMax = 88.72284f;  // above: infinity
inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
inline constexpr float kLn2Hi = 0.693359375f;      // 10 bits, so n * kLn2Hi is exact
inline constexpr float kLn2Lo = -2.12194440e-4f;
inline constexpr std::array<float, 6> kExpPoly = {1.0f / 5040, 1.0f / 720, 1.0f / 120,
                                                  1.0f / 24,   1.0f / 6,   0.5f};

inline float exp_f32(float x) {
  if (!(x >= kExpMin)) return x != x ? x : 0.0f;
  if (x > kExpMax) return std::bit_cast<float>(0x7f800000u);
  const float shifted = x * kLog2E + kRoundMagic;
  const float n = shifted - kRoundMagic;
  const float r = (x - n * kLn2Hi) - n * kLn2Lo;
  float p = kExpPoly[0];
  for (std::size_t i = 1; i < kExpPoly.size(); ++i) p = p * r + kExpPoly[i];
  p = (p * r) * r + r + 1.0f;
  // 2^n in two factors, so that subnormal results are reached without an exponent out of range.
  const auto whole = static_cast<std::int32_t>(n);
  const std::int32_t half = whole >> 1;
  const float a = std::bit_cast<float>((half + 127) << 23);
  const float b = std::bit_cast<float>((whole - half + 127) << 23);
  return p * a * b;
}

inline float sigmoid_f32(float x) {
  return 1.0f / (1.0f + exp_f32(-x));
}
inline float silu_f32(float x) {
  return x / (1.0f + exp_f32(-x));
}

}  // namespace deepinfer
