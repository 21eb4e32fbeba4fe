#include "tensor/quantize.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "tensor/float_formats.h"

namespace deepinfer {
namespace {

// |x| compared as integers: the order of magnitudes is the order of the bit patterns, and a NaN is above
// everything.
std::uint32_t abs_bits(float x) {
  return std::bit_cast<std::uint32_t>(x) & kF32AbsMask;
}

float block_amax(std::span<const float> block) {
  std::uint32_t best = 0;
  for (const float x : block) best = std::max(best, abs_bits(x));
  return std::bit_cast<float>(best);
}

// max(amax, floor) that keeps a NaN.
float floored(float amax, float floor) {
  return amax < floor ? floor : amax;
}

struct Scale {
  std::uint8_t byte;
  float multiplier;
};

// The three formats differ in how a scale is chosen and in the code of one value; the loops below are shared.
// `code` divides by the scale: multiplying by the exact reciprocal of a power of two is the same division.
struct Fp8 {
  static constexpr float kFloor = 1e-4f;
  static Scale scale(float amax) {
    const std::uint8_t byte = ceil_log2_ue8m0(floored(amax, kFloor) * (1.0f / 448.0f));
    return {byte, ue8m0_to_f32(byte)};
  }
  static float decode_scale(std::uint8_t byte) { return ue8m0_to_f32(byte); }
  static std::uint8_t code(float x, const Scale& s) { return f32_to_e4m3(x * ue8m0_reciprocal(s.byte)); }
  static float value(std::uint8_t code) { return e4m3_to_f32(code); }
};

struct Fp4Ue8m0 {
  static constexpr float kFloor = 6.0f * 0x1p-126f;
  static Scale scale(float amax) {
    const std::uint8_t byte = ceil_log2_ue8m0(floored(amax, kFloor) * (1.0f / 6.0f));
    return {byte, ue8m0_to_f32(byte)};
  }
  static float decode_scale(std::uint8_t byte) { return ue8m0_to_f32(byte); }
  static std::uint8_t code(float x, const Scale& s) { return f32_to_e2m1(x * ue8m0_reciprocal(s.byte)); }
  static float value(std::uint8_t code) { return e2m1_to_f32(code); }
};

struct Fp4E4m3 {
  static constexpr float kFloor = 6.0f * 0x1p-9f;
  static Scale scale(float amax) {
    const float floor_kept = floored(amax, kFloor);
    const bool finite = abs_bits(floor_kept) < kF32InfBits;
    const std::uint8_t byte = finite ? f32_to_e4m3(floor_kept / 6.0f) : kE4m3Nan;
    return {byte, e4m3_to_f32(byte)};
  }
  static float decode_scale(std::uint8_t byte) { return e4m3_to_f32(byte); }
  static std::uint8_t code(float x, const Scale& s) { return f32_to_e2m1(x / s.multiplier); }
  static float value(std::uint8_t code) { return e2m1_to_f32(code); }
};

template <class Format>
void round_trip(std::span<float> row, std::size_t block) {
  DI_CHECK(block > 0);
  for (std::size_t begin = 0; begin < row.size(); begin += block) {
    const std::span<float> part = row.subspan(begin, std::min(block, row.size() - begin));
    const Scale scale = Format::scale(block_amax(part));
    for (float& x : part) x = Format::value(Format::code(x, scale)) * scale.multiplier;
  }
}

template <class Format, class Put>
void encode(std::span<const float> row, std::size_t block, std::span<std::uint8_t> scales, Put put) {
  DI_CHECK(block > 0 && scales.size() == block_count(row.size(), block));
  for (std::size_t b = 0; b < scales.size(); ++b) {
    const std::size_t begin = b * block;
    const std::size_t end = std::min(row.size(), begin + block);
    const Scale scale = Format::scale(block_amax(row.subspan(begin, end - begin)));
    scales[b] = scale.byte;
    for (std::size_t i = begin; i < end; ++i) put(i, Format::code(row[i], scale));
  }
}

template <class Format, class Get>
void decode(std::span<const std::uint8_t> scales, std::size_t block, std::span<float> row, Get get) {
  DI_CHECK(block > 0 && scales.size() == block_count(row.size(), block));
  for (std::size_t i = 0; i < row.size(); ++i)
    row[i] = Format::value(get(i)) * Format::decode_scale(scales[i / block]);
}

struct PutNibble {
  std::span<std::uint8_t> packed;
  void operator()(std::size_t i, std::uint8_t code) const {
    if (i % 2 == 0)
      packed[i / 2] = code;
    else
      packed[i / 2] = pack_e2m1(packed[i / 2], code);
  }
};

struct GetNibble {
  std::span<const std::uint8_t> packed;
  std::uint8_t operator()(std::size_t i) const {
    return static_cast<std::uint8_t>(i % 2 == 0 ? packed[i / 2] & 15u : packed[i / 2] >> 4);
  }
};

template <class Format>
void encode_fp4(std::span<const float> row, std::size_t block, std::span<std::uint8_t> packed,
                std::span<std::uint8_t> scales) {
  DI_CHECK(packed.size() == (row.size() + 1) / 2);
  encode<Format>(row, block, scales, PutNibble{packed});
}

template <class Format>
void decode_fp4(std::span<const std::uint8_t> packed, std::span<const std::uint8_t> scales, std::size_t block,
                std::span<float> row) {
  DI_CHECK(packed.size() == (row.size() + 1) / 2);
  decode<Format>(scales, block, row, GetNibble{packed});
}

// Scales of weights: the exact smallest power of two with amax <= limit * scale (limit 448 or 6). amax /
// limit is rounded once in double, which cannot move it across a power of two: amax = limit * 2^k divides
// exactly.
std::uint8_t weight_scale(float amax, double limit) {
  const double ratio = static_cast<double>(std::max(amax, 1e-12f)) / limit;
  const auto bits = std::bit_cast<std::uint64_t>(ratio);
  const auto exponent =
      static_cast<std::int64_t>(bits >> 52) - 1023 + ((bits & ((1ull << 52) - 1)) != 0 ? 1 : 0);
  return static_cast<std::uint8_t>(exponent + 127);
}

std::uint8_t checked_weight_scale(float amax, double limit) {
  return abs_bits(amax) >= kF32InfBits ? kUe8m0Nan : weight_scale(amax, limit);
}

}  // namespace

void fp8_round_trip(std::span<float> row, std::size_t block) {
  round_trip<Fp8>(row, block);
}

void fp8_encode(std::span<const float> row, std::size_t block, std::span<std::uint8_t> codes,
                std::span<std::uint8_t> scales) {
  DI_CHECK(codes.size() == row.size());
  encode<Fp8>(row, block, scales, [codes](std::size_t i, std::uint8_t code) { codes[i] = code; });
}

void fp8_decode(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales, std::size_t block,
                std::span<float> row) {
  DI_CHECK(codes.size() == row.size());
  decode<Fp8>(scales, block, row, [codes](std::size_t i) { return codes[i]; });
}

void fp4_ue8m0_round_trip(std::span<float> row, std::size_t block) {
  round_trip<Fp4Ue8m0>(row, block);
}

void fp4_ue8m0_encode(std::span<const float> row, std::size_t block, std::span<std::uint8_t> packed,
                      std::span<std::uint8_t> scales) {
  encode_fp4<Fp4Ue8m0>(row, block, packed, scales);
}

void fp4_ue8m0_decode(std::span<const std::uint8_t> packed, std::span<const std::uint8_t> scales,
                      std::size_t block, std::span<float> row) {
  decode_fp4<Fp4Ue8m0>(packed, scales, block, row);
}

void fp4_e4m3_round_trip(std::span<float> row, std::size_t block) {
  round_trip<Fp4E4m3>(row, block);
}

void fp4_e4m3_encode(std::span<const float> row, std::size_t block, std::span<std::uint8_t> packed,
                     std::span<std::uint8_t> scales) {
  encode_fp4<Fp4E4m3>(row, block, packed, scales);
}

void fp4_e4m3_decode(std::span<const std::uint8_t> packed, std::span<const std::uint8_t> scales,
                     std::size_t block, std::span<float> row) {
  decode_fp4<Fp4E4m3>(packed, scales, block, row);
}

void fp8_quantize_weight(std::span<const float> weight, std::int64_t rows, std::int64_t cols, TileShape tile,
                         std::span<std::uint8_t> codes, std::span<std::uint8_t> scales) {
  DI_CHECK(rows >= 0 && cols >= 0 && tile.rows > 0 && tile.cols > 0);
  const std::int64_t tile_rows = (rows + tile.rows - 1) / tile.rows;
  const std::int64_t tile_cols = (cols + tile.cols - 1) / tile.cols;
  DI_CHECK(weight.size() == static_cast<std::size_t>(rows * cols) && codes.size() == weight.size() &&
           scales.size() == static_cast<std::size_t>(tile_rows * tile_cols));
  for (std::int64_t tr = 0; tr < tile_rows; ++tr) {
    for (std::int64_t tc = 0; tc < tile_cols; ++tc) {
      const std::int64_t row_end = std::min(rows, (tr + 1) * tile.rows);
      const std::int64_t col_begin = tc * tile.cols;
      const auto width = static_cast<std::size_t>(std::min(tile.cols, cols - col_begin));
      std::uint32_t best = 0;
      for (std::int64_t r = tr * tile.rows; r < row_end; ++r) {
        const auto line = weight.subspan(static_cast<std::size_t>(r * cols + col_begin), width);
        best = std::max(best, std::bit_cast<std::uint32_t>(block_amax(line)));
      }
      const std::uint8_t byte = checked_weight_scale(std::bit_cast<float>(best), kE4m3Max);
      scales[static_cast<std::size_t>(tr * tile_cols + tc)] = byte;
      const float inverse = ue8m0_reciprocal(byte);
      for (std::int64_t r = tr * tile.rows; r < row_end; ++r) {
        const auto offset = static_cast<std::size_t>(r * cols + col_begin);
        for (std::size_t i = 0; i < width; ++i) codes[offset + i] = f32_to_e4m3(weight[offset + i] * inverse);
      }
    }
  }
}

void fp8_dequantize_weight(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales,
                           std::int64_t rows, std::int64_t cols, TileShape tile, std::span<float> weight) {
  DI_CHECK(rows >= 0 && cols >= 0 && tile.rows > 0 && tile.cols > 0);
  const std::int64_t tile_rows = (rows + tile.rows - 1) / tile.rows;
  const std::int64_t tile_cols = (cols + tile.cols - 1) / tile.cols;
  DI_CHECK(codes.size() == static_cast<std::size_t>(rows * cols) && weight.size() == codes.size() &&
           scales.size() == static_cast<std::size_t>(tile_rows * tile_cols));
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto scale_row = scales.subspan(static_cast<std::size_t>(r / tile.rows * tile_cols));
    for (std::int64_t c = 0; c < cols; ++c) {
      const auto i = static_cast<std::size_t>(r * cols + c);
      weight[i] = e4m3_to_f32(codes[i]) * ue8m0_to_f32(scale_row[static_cast<std::size_t>(c / tile.cols)]);
    }
  }
}

void fp4_quantize_weight(std::span<const float> weight, std::int64_t rows, std::int64_t cols,
                         std::span<std::uint8_t> packed, std::span<std::uint8_t> scales) {
  constexpr std::int64_t kBlock = 32;
  DI_CHECK(rows >= 0 && cols >= 0 && cols % kBlock == 0);
  DI_CHECK(weight.size() == static_cast<std::size_t>(rows * cols) && packed.size() * 2 == weight.size() &&
           scales.size() * kBlock == weight.size());
  const PutNibble put{packed};
  for (std::size_t b = 0; b < scales.size(); ++b) {
    const std::size_t begin = b * kBlock;
    const std::uint8_t byte = checked_weight_scale(block_amax(weight.subspan(begin, kBlock)), kE2m1Max);
    scales[b] = byte;
    const float inverse = ue8m0_reciprocal(byte);
    for (std::size_t i = begin; i < begin + kBlock; ++i) put(i, f32_to_e2m1(weight[i] * inverse));
  }
}

void fp4_dequantize_weight(std::span<const std::uint8_t> packed, std::span<const std::uint8_t> scales,
                           std::int64_t rows, std::int64_t cols, std::span<float> weight) {
  DI_CHECK(rows >= 0 && cols >= 0 && cols % 32 == 0 &&
           weight.size() == static_cast<std::size_t>(rows * cols));
  fp4_ue8m0_decode(packed, scales, 32, weight);
}

}  // namespace deepinfer
