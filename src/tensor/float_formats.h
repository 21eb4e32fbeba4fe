// Conversions between fp32 and the narrow formats, one value at a time: bf16, f16, e4m3fn, e2m1, ue8m0.
// These are the definitions the faster kernels are compared with. All functions are pure and constexpr, round
// to nearest with ties to the even code, and never depend on the environment's rounding mode for their choice
// of scale.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace deepinfer {

inline constexpr std::uint32_t kF32AbsMask = 0x7fffffffu;
inline constexpr std::uint32_t kF32InfBits = 0x7f800000u;

// ---- bf16: the upper half of an fp32 ----

constexpr float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// A NaN stays a NaN of the same sign (made quiet); values past the largest bf16 round to infinity.
constexpr std::uint16_t f32_to_bf16(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  if ((u & kF32AbsMask) > kF32InfBits) return static_cast<std::uint16_t>((u >> 16) | 0x0040u);
  return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

constexpr float round_to_bf16(float value) {
  return bf16_to_f32(f32_to_bf16(value));
}

// ---- f16 (IEEE binary16), decode only: some tools store norms so ----

constexpr float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 31u;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | kF32InfBits | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // exact: at most 10 bits
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

// ---- e4m3fn: sign, 4 exponent bits (bias 7), 3 mantissa bits ----

inline constexpr float kE4m3Max = 448.0f;
inline constexpr std::uint8_t kE4m3Nan = 0x7f;

namespace internal {
constexpr float e4m3_decode(int code) {
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  if ((code & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80) << 24;
  const float magnitude = exponent == 0
                              ? static_cast<float>(mantissa) * 0x1p-9f
                              : std::bit_cast<float>(static_cast<std::uint32_t>(exponent - 7 + 127) << 23 |
                                                     static_cast<std::uint32_t>(mantissa) << 20);
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}
constexpr std::array<float, 256> make_e4m3_table() {
  std::array<float, 256> table{};
  for (int code = 0; code < 256; ++code) table[static_cast<std::size_t>(code)] = e4m3_decode(code);
  return table;
}
}  // namespace internal

inline constexpr std::array<float, 256> kE4m3Table = internal::make_e4m3_table();

constexpr float e4m3_to_f32(std::uint8_t code) {
  return kE4m3Table[code];
}

/// Saturates: everything beyond 448, infinities too, becomes +-448. NaN becomes the NaN code of its sign.
constexpr std::uint8_t f32_to_e4m3(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint8_t>((u >> 24) & 0x80u);
  std::uint32_t a = u & kF32AbsMask;
  if (a > kF32InfBits) return static_cast<std::uint8_t>(sign | kE4m3Nan);
  if (a >= std::bit_cast<std::uint32_t>(kE4m3Max)) return static_cast<std::uint8_t>(sign | 0x7eu);
  if (a < std::bit_cast<std::uint32_t>(0x1p-6f)) {
    // Codes 0..8 count steps of 2^-9, and 2^14 is the fp32 whose last bit weighs 2^-9: the sum rounds as we
    // need.
    const float sum = std::bit_cast<float>(a) + 0x1p14f;
    return static_cast<std::uint8_t>(
        sign | (std::bit_cast<std::uint32_t>(sum) - std::bit_cast<std::uint32_t>(0x1p14f)));
  }
  a += 0x7ffffu + ((a >> 20) & 1u);
  return static_cast<std::uint8_t>(sign | ((a >> 20) - ((127u - 7u) << 3)));
}

// ---- e2m1 (FP4): sign << 3 | index into {0, .5, 1, 1.5, 2, 3, 4, 6} ----

inline constexpr float kE2m1Max = 6.0f;
inline constexpr std::array<float, 16> kE2m1Table = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                                     -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

constexpr float e2m1_to_f32(std::uint8_t code) {
  return kE2m1Table[code & 15u];
}

/// Saturates at +-6. Ties go to the even code: .25, 1.25, 2.5 and 5 down, .75, 1.75 and 3.5 up. The format
/// has no NaN; a NaN becomes a zero of its sign, so block quantisers put the NaN into the scale (quantize.h).
constexpr std::uint8_t f32_to_e2m1(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  const float a = std::bit_cast<float>(u & kF32AbsMask);
  const int index =
      (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
  return static_cast<std::uint8_t>(((u >> 28) & 8u) | static_cast<std::uint32_t>(index));
}

/// Two codes a byte along a row: the even column in the low nibble.
constexpr std::uint8_t pack_e2m1(std::uint8_t even, std::uint8_t odd) {
  return static_cast<std::uint8_t>((even & 15u) | (odd << 4));
}

// ---- ue8m0: a power of two as its biased exponent ----

inline constexpr std::uint8_t kUe8m0Nan = 255;

/// 2^(byte-127), a multiplier; byte 0 is the subnormal 2^-127, byte 255 is NaN.
constexpr float ue8m0_to_f32(std::uint8_t byte) {
  if (byte == kUe8m0Nan) return std::numeric_limits<float>::quiet_NaN();
  if (byte == 0) return 0x1p-127f;
  return std::bit_cast<float>(static_cast<std::uint32_t>(byte) << 23);
}

/// The ue8m0 byte of 2^ceil(log2(x)) for x >= 2^-126, read off the bit pattern: the exponent, plus one when
/// any mantissa bit is set. Infinity and NaN give a byte of 255 (NaN); x must not be negative.
constexpr std::uint8_t ceil_log2_ue8m0(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  if (u >= kF32InfBits) return kUe8m0Nan;
  return static_cast<std::uint8_t>((u >> 23) + ((u & 0x7fffffu) != 0 ? 1u : 0u));
}

/// 1 / ue8m0_to_f32(byte) for bytes 1..253, exact.
constexpr float ue8m0_reciprocal(std::uint8_t byte) {
  if (byte == kUe8m0Nan) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>((254u - byte) << 23);
}

}  // namespace deepinfer
