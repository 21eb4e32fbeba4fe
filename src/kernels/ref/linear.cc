// y = x · Wᵀ by the order of ops.h: 32 products by fma, times the block's scale, added up. The weight row is
// decoded once and used for all rows; four rows at a time keep the fma units busy without touching anyone's
// order of sums.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/round.h"
#include "tensor/float_formats.h"

namespace deepinfer::ref {
namespace {

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define DI_REF_CLONES __attribute__((target_clones("fma", "default")))
#else
#define DI_REF_CLONES
#endif

std::int64_t block_count_of(std::int64_t k) {
  return (k + kAccumulateBlock - 1) / kAccumulateBlock;
}

// Row n of W: unscaled values [k], one multiplier per 32 of them.
void decode_row(const Weight& w, std::int64_t n, float* values, float* scales) {
  const std::int64_t blocks = block_count_of(w.k);
  std::fill(scales, scales + blocks, 1.0f);
  switch (w.format) {
    case WeightFormat::kF32: {
      const auto* row = reinterpret_cast<const float*>(w.data) + n * w.k;
      std::copy(row, row + w.k, values);
      return;
    }
    case WeightFormat::kBf16: {
      const auto* row = reinterpret_cast<const std::uint16_t*>(w.data) + n * w.k;
      for (std::int64_t i = 0; i < w.k; ++i) values[i] = bf16_to_f32(row[i]);
      return;
    }
    case WeightFormat::kFp8: {
      const std::uint8_t* row = w.data + n * w.k;
      for (std::int64_t i = 0; i < w.k; ++i) values[i] = e4m3_to_f32(row[i]);
      const std::int64_t columns = (w.k + w.scale_block - 1) / w.scale_block;
      const std::uint8_t* scale_row = w.scale + n / w.scale_block * columns;
      for (std::int64_t b = 0; b < blocks; ++b) {
        scales[b] = ue8m0_to_f32(scale_row[b * kAccumulateBlock / w.scale_block]);
      }
      return;
    }
    case WeightFormat::kFp4: {
      const std::uint8_t* row = w.data + n * w.k / 2;
      for (std::int64_t i = 0; i < w.k; ++i) {
        values[i] = e2m1_to_f32(static_cast<std::uint8_t>(i % 2 == 0 ? row[i / 2] & 15 : row[i / 2] >> 4));
      }
      for (std::int64_t b = 0; b < blocks; ++b) scales[b] = ue8m0_to_f32(w.scale[n * blocks + b]);
      return;
    }
  }
}

template <int kRows>
inline void dot_rows(const float* x, std::int64_t stride, const float* w, const float* scales, std::int64_t k,
                     float* out) {
  float acc[kRows] = {};
  for (std::int64_t begin = 0, b = 0; begin < k; begin += kAccumulateBlock, ++b) {
    const std::int64_t end = std::min(begin + kAccumulateBlock, k);
    float t[kRows] = {};
    for (std::int64_t i = begin; i < end; ++i) {
      for (int r = 0; r < kRows; ++r) t[r] = std::fma(x[r * stride + i], w[i], t[r]);
    }
    for (int r = 0; r < kRows; ++r) acc[r] = std::fma(t[r], scales[b], acc[r]);
  }
  for (int r = 0; r < kRows; ++r) out[r] = acc[r];
}

// One decoded weight row against all rows of x.
DI_REF_CLONES
void column(const float* x, std::int64_t x_stride, std::int64_t rows, const float* w, const float* scales,
            std::int64_t k, float* y, std::int64_t y_stride) {
  constexpr int kRows = 8;
  float out[kRows];
  std::int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) {
    dot_rows<kRows>(x + r * x_stride, x_stride, w, scales, k, out);
    for (int i = 0; i < kRows; ++i) y[(r + i) * y_stride] = out[i];
  }
  for (; r < rows; ++r) dot_rows<1>(x + r * x_stride, x_stride, w, scales, k, y + r * y_stride);
}

}  // namespace

void linear(const Exec& exec, const LinearOp& op) {
  DI_CHECK(op.w.data != nullptr, "the reference reads weights as stored");
  DI_CHECK(op.w.format != WeightFormat::kFp4 || op.w.k % kAccumulateBlock == 0, "FP4 with k = ", op.w.k);
  exec.threads->parallel_for(op.w.n, 16, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<float> values(static_cast<std::size_t>(op.w.k));
    std::vector<float> scales(static_cast<std::size_t>(block_count_of(op.w.k)));
    for (std::int64_t n = begin; n < end; ++n) {
      decode_row(op.w, n, values.data(), scales.data());
      column(op.x, op.x_stride, op.rows, values.data(), scales.data(), op.w.k, op.y + n, op.y_stride);
      for (std::int64_t t = 0; t < op.rows; ++t)
        op.y[t * op.y_stride + n] = rounded(op.y[t * op.y_stride + n], op.round);
    }
  });
}

void grouped_linear(const Exec& exec, const GroupedLinearOp& op) {
  const std::int64_t n = op.w.n / op.groups;
  exec.threads->parallel_for(op.w.n, 16, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<float> values(static_cast<std::size_t>(op.w.k));
    std::vector<float> scales(static_cast<std::size_t>(block_count_of(op.w.k)));
    for (std::int64_t i = begin; i < end; ++i) {
      decode_row(op.w, i, values.data(), scales.data());
      // With bf16 activations the network multiplies by bf16(weight * scale); for 8-bit weights that is exact
      // unless the product leaves bf16's normal range, so scaling afterwards gives the same sum.
      column(op.x + i / n * op.w.k, op.groups * op.w.k, op.rows, values.data(), scales.data(), op.w.k,
             op.y + i, op.w.n);
      for (std::int64_t t = 0; t < op.rows; ++t)
        op.y[t * op.w.n + i] = rounded(op.y[t * op.w.n + i], op.round);
    }
  });
}

}  // namespace deepinfer::ref
