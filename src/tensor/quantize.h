// Block quantisers: the roundings that are part of the models (activations into FP8 linears, cache rows,
// index keys) and the weight quantisers that write checkpoints. Plain loops, the reference for every faster
// kernel.
//
// A row is cut into blocks of `block` values; the last block may be short. Each block shares one scale:
//   fp8        codes e4m3, scale ue8m0: amax floored at 1e-4,      scale = 2^ceil(log2(amax * (1/448)))
//   fp4 ue8m0  codes e2m1, scale ue8m0: amax floored at 6 * 2^-126, scale = 2^ceil(log2(amax * (1/6)))
//   fp4 e4m3   codes e2m1, scale e4m3:  amax floored at 6 * 2^-9,   scale = e4m3(amax / 6), which may round
//   down,
//              so that x / scale may pass 6 and saturates
// All arithmetic is fp32. round_trip(x) equals decode(encode(x)) bit for bit. A NaN or an infinity makes the
// scale NaN, and with it the whole block: a broken activation stays visible. Pure functions; spans must not
// overlap except where a function says "in place". Wrong span sizes are caller bugs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace deepinfer {

/// Number of blocks (scales) in a row of `size` values.
constexpr std::size_t block_count(std::size_t size, std::size_t block) {
  return (size + block - 1) / block;
}

// ---- fp8: activations of a quantised linear (block 32 or 128), window and V4 cache rows (block 32 or 64)
// ----

void fp8_round_trip(std::span<float> row, std::size_t block);
/// codes [row.size()], scales [block_count] as ue8m0 bytes.
void fp8_encode(std::span<const float> row, std::size_t block, std::span<std::uint8_t> codes,
                std::span<std::uint8_t> scales);
void fp8_decode(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales, std::size_t block,
                std::span<float> row);

// ---- fp4 with ue8m0 scales: index keys and queries (block 32), expert weights ----

void fp4_ue8m0_round_trip(std::span<float> row, std::size_t block);
/// packed [ceil(row.size() / 2)], the even column in the low nibble; an odd tail leaves the last high nibble
/// 0.
void fp4_ue8m0_encode(std::span<const float> row, std::size_t block, std::span<std::uint8_t> packed,
                      std::span<std::uint8_t> scales);
void fp4_ue8m0_decode(std::span<const std::uint8_t> packed, std::span<const std::uint8_t> scales,
                      std::size_t block, std::span<float> row);

// ---- fp4 with e4m3 scales: compressed cache rows (block 16) ----

void fp4_e4m3_round_trip(std::span<float> row, std::size_t block);
void fp4_e4m3_encode(std::span<const float> row, std::size_t block, std::span<std::uint8_t> packed,
                     std::span<std::uint8_t> scales);
void fp4_e4m3_decode(std::span<const std::uint8_t> packed, std::span<const std::uint8_t> scales,
                     std::size_t block, std::span<float> row);

// ---- weights: row-major [rows, cols], one scale a tile ----

/// Tiles 32x32 (V4.1), 128x128 (V4) or 1x32 (Engram rows).
struct TileShape {
  std::int64_t rows = 32;
  std::int64_t cols = 32;
};

/// Codes [rows, cols] and scales [ceil(rows / tile.rows), ceil(cols / tile.cols)]. The scale is the smallest
/// power of two that keeps the tile within 448, and 1e-12 is the floor of amax, so an all-zero tile gets a
/// finite scale.
void fp8_quantize_weight(std::span<const float> weight, std::int64_t rows, std::int64_t cols, TileShape tile,
                         std::span<std::uint8_t> codes, std::span<std::uint8_t> scales);
void fp8_dequantize_weight(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales,
                           std::int64_t rows, std::int64_t cols, TileShape tile, std::span<float> weight);

/// Packed [rows, cols / 2] and scales [rows, cols / 32]; cols must be a multiple of 32. Floor of amax as
/// above.
void fp4_quantize_weight(std::span<const float> weight, std::int64_t rows, std::int64_t cols,
                         std::span<std::uint8_t> packed, std::span<std::uint8_t> scales);
void fp4_dequantize_weight(std::span<const std::uint8_t> packed, std::span<const std::uint8_t> scales,
                           std::int64_t rows, std::int64_t cols, std::span<float> weight);

}  // namespace deepinfer
