// Dot products of a few vectors with many: attention logits and index scores. Each product has the order of
// ops.h.
#include "kernels/cpu/simd-inl.h"

#if defined(DI_KERNELS_DOTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DI_KERNELS_DOTS_INL_H
#undef DI_KERNELS_DOTS_INL_H
#else
#define DI_KERNELS_DOTS_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3
/// sum16 of 16 values: a[4*c + r] goes to out[r*stride + c].
HWY_INLINE void sum16x16(const V16* a, float* out, std::int64_t stride) {
  __m512 t[8], u[4], v[2];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {  // 8 apart, two values a register
    const __m512 x = a[2 * i].v[0].raw, y = a[2 * i + 1].v[0].raw;
    t[i] = _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xee));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // 4 apart, four values
    const __m512 x = t[2 * i], y = t[2 * i + 1];
    u[i] = _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd));
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {  // 2 apart
    const __m512d x = _mm512_castps_pd(u[2 * i]), y = _mm512_castps_pd(u[2 * i + 1]);
    v[i] =
        _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
  }
  const __m512 w = _mm512_add_ps(_mm512_shuffle_ps(v[0], v[1], 0x88), _mm512_shuffle_ps(v[0], v[1], 0xdd));
  _mm_storeu_ps(out, _mm512_castps512_ps128(w));
  _mm_storeu_ps(out + stride, _mm512_extractf32x4_ps(w, 1));
  _mm_storeu_ps(out + 2 * stride, _mm512_extractf32x4_ps(w, 2));
  _mm_storeu_ps(out + 3 * stride, _mm512_extractf32x4_ps(w, 3));
}
#endif

/// kHeads x 4 products, out[h*stride + j].
template <int kHeads>
HWY_INLINE void dots_block(const float* q, const float* keys, std::int64_t dim, float* out,
                           std::int64_t stride) {
  V16 acc[4 * kHeads];
#pragma GCC unroll 16
  for (int i = 0; i < 4 * kHeads; ++i) acc[i] = zero16();
  for (std::int64_t i = 0; i < dim; i += 16) {
    V16 x[kHeads];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) x[h] = load16(q + h * dim + i);
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const V16 k = load16(keys + c * dim + i);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) acc[c * kHeads + h] = fma16(x[h], k, acc[c * kHeads + h]);
    }
  }
#if HWY_TARGET == HWY_AVX3
  if constexpr (kHeads == 4) {
    sum16x16(acc, out, stride);
    return;
  }
#endif
  for (int h = 0; h < kHeads; ++h) {
    sum16x4(acc[h], acc[kHeads + h], acc[2 * kHeads + h], acc[3 * kHeads + h], out + h * stride);
  }
}

/// out[h*stride + j] = q_h · key_j; q [heads, dim], keys [count, dim], dim a multiple of 16.
HWY_INLINE void dots(const float* q, std::int64_t heads, const float* keys, std::int64_t count,
                     std::int64_t dim, float* out, std::int64_t stride) {
  constexpr int kHeads = kVecs == 1 ? 4 : 1;
  std::int64_t j = 0;
  for (; j + 4 <= count; j += 4) {
    std::int64_t h = 0;
    for (; h + kHeads <= heads; h += kHeads) {
      dots_block<kHeads>(q + h * dim, keys + j * dim, dim, out + h * stride + j, stride);
    }
    for (; h < heads; ++h) dots_block<1>(q + h * dim, keys + j * dim, dim, out + h * stride + j, stride);
  }
  for (; j < count; ++j) {
    for (std::int64_t h = 0; h < heads; ++h) out[h * stride + j] = dot16(q + h * dim, keys + j * dim, dim);
  }
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per-target include guard
