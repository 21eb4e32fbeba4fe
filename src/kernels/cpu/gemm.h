// The matrix cores under every linear operator: packed weights against a handful of rows (decoded in
// registers, memory speed) or against many (decoded once into a panel that stays in cache, arithmetic speed).
// Both compute, for each output element, t = Σ x_k w_k by fma over 32 k's from 0 and acc = fma(t, scale,
// acc): the same bits whichever is taken. Single-threaded building blocks; linear.cc and experts.cc spread
// them over the threads.
#pragma once

#include <cstdint>

#include "kernels/weight.h"

namespace deepinfer::cpu {

/// Sizes of the present machine's cores.
struct GemmTraits {
  std::int64_t direct_rows;  ///< most rows gemm_direct takes
  std::int64_t panel_tiles;  ///< tiles of 16 outputs gemm_panel handles at once
  std::int64_t block_rows;   ///< rows of a register block; packed rows come in blocks of at most this many
};
GemmTraits gemm_traits();

/// Rows that one gemm_panel call takes at most, so that its accumulators stay in cache.
inline constexpr std::int64_t kPanelRows = 192;
/// Bytes of scratch gemm_panel needs, aligned to kAlignment.
inline constexpr std::int64_t kPanelScratchBytes = 4 * (256 * 32 + 8 * 32 + kPanelRows * 32);

/// Where outputs go: element (row r, output n) to y[r*stride + n - n_begin] for n in [n_begin, n_end), others
/// nowhere.
struct GemmOutput {
  float* y;
  std::int64_t stride;
  std::int64_t n_begin;
  std::int64_t n_end;
  bool bf16;  ///< rounded to bf16
};

/// Floats gemm_pack_few fills, at most.
inline std::int64_t packed_few_size(std::int64_t k) {
  return 8 * k;
}
/// Copies rows <= direct_rows into the order gemm_direct reads: k by k, the rows side by side (filled up with
/// zeros to 1, 2, 4 or 8). Rows of a large matrix often lie a power of two apart, where they would fight for
/// the same cache lines. A single row is its own packed form. x[r][0..k_count) goes to columns [k_begin,
/// k_begin + k_count).
void gemm_pack_few(const float* const* x, std::int64_t rows, std::int64_t k_begin, std::int64_t k_count,
                   float* packed);

/// Tiles [tile_begin, tile_end) of w times rows <= direct_rows from gemm_pack_few.
void gemm_direct(const Weight& w, std::int64_t tile_begin, std::int64_t tile_end, const float* packed,
                 std::int64_t rows, const GemmOutput& out);

/// Floats gemm_pack_rows fills for this many rows of length k.
std::int64_t packed_rows_size(std::int64_t rows, std::int64_t k);
/// Copies rows of length k into the order gemm_panel reads: register blocks of rows, k by k; missing rows of
/// the last block are zero. x[r][0..k_count) goes to columns [k_begin, k_begin + k_count).
void gemm_pack_rows(const float* const* x, std::int64_t rows, std::int64_t k, std::int64_t k_begin,
                    std::int64_t k_count, float* packed);

/// Tiles [tile_begin, tile_end), at most panel_tiles, times rows <= kPanelRows packed by gemm_pack_rows.
void gemm_panel(const Weight& w, std::int64_t tile_begin, std::int64_t tile_end, const float* packed_rows,
                std::int64_t rows, const GemmOutput& out, void* scratch);

}  // namespace deepinfer::cpu
