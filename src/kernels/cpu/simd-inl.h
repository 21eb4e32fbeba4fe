// Sixteen virtual lanes on top of Highway, compiled once a target: one AVX-512 register, two AVX2 registers,
// four 128-bit ones. A kernel written in these terms has the same order of sums on each of them. Fused
// multiply-add is exact on every target (by std::fma where the hardware has none).
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/math.h"
#include "tensor/float_formats.h"

#if defined(DI_KERNELS_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DI_KERNELS_SIMD_INL_H
#undef DI_KERNELS_SIMD_INL_H
#else
#define DI_KERNELS_SIMD_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using DU = hn::RebindToUnsigned<DF>;
using DI = hn::RebindToSigned<DF>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;

inline constexpr int kVecLanes = static_cast<int>(hn::MaxLanes(DF()));
inline constexpr int kVecs = 16 / kVecLanes;  // registers of a 16-lane value

HWY_INLINE VF vec_fma(VF a, VF b, VF c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  const DF d;
  HWY_ALIGN float x[kVecLanes], y[kVecLanes], z[kVecLanes];
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  hn::Store(c, d, z);
  for (int i = 0; i < kVecLanes; ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(d, z);
#endif
}

/// Round to bf16 and back, ties to even; NaN stays NaN.
HWY_INLINE VF vec_bf16(VF x) {
  const DU du;
  const DF df;
  const VU u = hn::BitCast(du, x);
  const VU odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1u));
  const VU up = hn::And(hn::Add(u, hn::Add(odd, hn::Set(du, 0x7fffu))), hn::Set(du, 0xffff0000u));
  const VU nan = hn::And(hn::Or(u, hn::Set(du, 0x00400000u)), hn::Set(du, 0xffff0000u));
  return hn::IfThenElse(hn::IsNaN(x), hn::BitCast(df, nan), hn::BitCast(df, up));
}

/// exp_f32 of kernels/math.h, lane by lane the same operations.
HWY_INLINE VF vec_exp(VF x) {
  const DF d;
  const DI di;
  const VF shifted = hn::Add(hn::Mul(x, hn::Set(d, kLog2E)), hn::Set(d, kRoundMagic));
  const VF n = hn::Sub(shifted, hn::Set(d, kRoundMagic));
  const VF r = hn::Sub(hn::Sub(x, hn::Mul(n, hn::Set(d, kLn2Hi))), hn::Mul(n, hn::Set(d, kLn2Lo)));
  VF p = hn::Set(d, kExpPoly[0]);
  for (std::size_t i = 1; i < kExpPoly.size(); ++i) p = hn::Add(hn::Mul(p, r), hn::Set(d, kExpPoly[i]));
  p = hn::Add(hn::Add(hn::Mul(hn::Mul(p, r), r), r), hn::Set(d, 1.0f));
  const auto whole = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(whole);
  const auto bias = hn::Set(di, 127);
  const VF a = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const VF b = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(whole, half), bias)));
  VF y = hn::Mul(hn::Mul(p, a), b);
  y = hn::IfThenElse(hn::Gt(x, hn::Set(d, kExpMax)), hn::BitCast(d, hn::Set(DU(), 0x7f800000u)), y);
  y = hn::IfThenElse(hn::Lt(x, hn::Set(d, kExpMin)), hn::Zero(d), y);
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

/// x / (1 + exp(-x)), silu_f32 of kernels/math.h.
HWY_INLINE VF vec_silu(VF x) {
  const DF d;
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), vec_exp(hn::Neg(x))));
}

/// 2^(byte-127) of bytes widened to 32 bits; 0 is 2^-127 and 255 a NaN.
HWY_INLINE VF vec_ue8m0(VU byte) {
  const DU du;
  const VU edge = hn::Set(du, 0x00400000u);
  const auto special = hn::Or(hn::Eq(byte, hn::Zero(du)), hn::Eq(byte, hn::Set(du, 255u)));
  return hn::BitCast(DF(), hn::Or(hn::ShiftLeft<23>(byte), hn::IfThenElseZero(special, edge)));
}

// ---- 16 lanes ----

struct V16 {
  VF v[kVecs];
};

HWY_INLINE V16 zero16() {
  V16 r;
  for (int i = 0; i < kVecs; ++i) r.v[i] = hn::Zero(DF());
  return r;
}
HWY_INLINE V16 set16(float x) {
  V16 r;
  const VF s = hn::Set(DF(), x);
  for (int i = 0; i < kVecs; ++i) r.v[i] = s;
  return r;
}
HWY_INLINE V16 load16(const float* p) {
  V16 r;
  for (int i = 0; i < kVecs; ++i) r.v[i] = hn::LoadU(DF(), p + i * kVecLanes);
  return r;
}
HWY_INLINE void store16(V16 x, float* p) {
  for (int i = 0; i < kVecs; ++i) hn::StoreU(x.v[i], DF(), p + i * kVecLanes);
}
/// The first `count` (0..16) lanes; the others are zero.
HWY_INLINE V16 load16_part(const float* p, std::int64_t count) {
  HWY_ALIGN float buffer[16] = {};
  for (std::int64_t i = 0; i < count; ++i) buffer[i] = p[i];
  return load16(buffer);
}
HWY_INLINE void store16_part(V16 x, float* p, std::int64_t count) {
  HWY_ALIGN float buffer[16];
  store16(x, buffer);
  for (std::int64_t i = 0; i < count; ++i) p[i] = buffer[i];
}
HWY_INLINE V16 fma16(V16 a, V16 b, V16 c) {
  for (int i = 0; i < kVecs; ++i) c.v[i] = vec_fma(a.v[i], b.v[i], c.v[i]);
  return c;
}
HWY_INLINE V16 fma16(float a, V16 b, V16 c) {
  const VF s = hn::Set(DF(), a);
  for (int i = 0; i < kVecs; ++i) c.v[i] = vec_fma(s, b.v[i], c.v[i]);
  return c;
}
HWY_INLINE V16 mul16(V16 a, V16 b) {
  for (int i = 0; i < kVecs; ++i) a.v[i] = hn::Mul(a.v[i], b.v[i]);
  return a;
}
HWY_INLINE V16 add16(V16 a, V16 b) {
  for (int i = 0; i < kVecs; ++i) a.v[i] = hn::Add(a.v[i], b.v[i]);
  return a;
}
HWY_INLINE V16 max16(V16 a, V16 b) {
  for (int i = 0; i < kVecs; ++i) a.v[i] = hn::Max(a.v[i], b.v[i]);
  return a;
}
HWY_INLINE V16 bf16_16(V16 a) {
  for (int i = 0; i < kVecs; ++i) a.v[i] = vec_bf16(a.v[i]);
  return a;
}
HWY_INLINE V16 round16(V16 a, bool to_bf16) {
  return to_bf16 ? bf16_16(a) : a;
}
/// 16 bf16 values.
HWY_INLINE V16 load_bf16_16(const std::uint16_t* p) {
  V16 r;
  const hn::Rebind<std::uint16_t, DU> dh;
  for (int i = 0; i < kVecs; ++i) {
    const VU u = hn::PromoteTo(DU(), hn::LoadU(dh, p + i * kVecLanes));
    r.v[i] = hn::BitCast(DF(), hn::ShiftLeft<16>(u));
  }
  return r;
}
/// 16 bytes widened.
HWY_INLINE VU load_bytes(const std::uint8_t* p) {
  const hn::Rebind<std::uint8_t, DU> db;
  return hn::PromoteTo(DU(), hn::LoadU(db, p));
}
/// 16 e4m3 codes (no NaN codes among them).
HWY_INLINE VF vec_e4m3(const std::uint8_t* p) {
  const hn::Rebind<std::int8_t, DI> db;
  const auto wide = hn::PromoteTo(DI(), hn::LoadU(db, reinterpret_cast<const std::int8_t*>(p)));
  const VU bits = hn::And(hn::BitCast(DU(), hn::ShiftLeft<20>(wide)), hn::Set(DU(), 0x87f00000u));
  return hn::Mul(hn::BitCast(DF(), bits), hn::Set(DF(), 0x1p120f));
}

/// The lanes added 8, 4, 2 and 1 apart.
HWY_INLINE float sum16(V16 x) {
#if HWY_TARGET == HWY_AVX3
  const __m512 z = x.v[0].raw;
  const __m256 y = _mm256_add_ps(_mm512_castps512_ps256(z), _mm512_extractf32x8_ps(z, 1));
#elif HWY_TARGET == HWY_AVX2
  const __m256 y = _mm256_add_ps(x.v[0].raw, x.v[1].raw);
#endif
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  q = _mm_add_ss(q, _mm_movehdup_ps(q));
  return _mm_cvtss_f32(q);
#else
  HWY_ALIGN float lanes[16];
  store16(x, lanes);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
#endif
}

/// sum16 of four values at once, to out[0..4).
HWY_INLINE void sum16x4(V16 a, V16 b, V16 c, V16 d, float* out) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  const auto quarter = [](V16 x) HWY_ATTR {
#if HWY_TARGET == HWY_AVX3
    const __m256 y = _mm256_add_ps(_mm512_castps512_ps256(x.v[0].raw), _mm512_extractf32x8_ps(x.v[0].raw, 1));
#else
    const __m256 y = _mm256_add_ps(x.v[0].raw, x.v[1].raw);
#endif
    return _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
  };
  const __m128 qa = quarter(a), qb = quarter(b), qc = quarter(c), qd = quarter(d);
  // Lanes 2 apart: (a0 a1 b0 b1) + (a2 a3 b2 b3); then 1 apart.
  const __m128 ab = _mm_add_ps(_mm_movelh_ps(qa, qb), _mm_movehl_ps(qb, qa));
  const __m128 cd = _mm_add_ps(_mm_movelh_ps(qc, qd), _mm_movehl_ps(qd, qc));
  _mm_storeu_ps(out, _mm_add_ps(_mm_shuffle_ps(ab, cd, 0x88), _mm_shuffle_ps(ab, cd, 0xdd)));
#else
  out[0] = sum16(a);
  out[1] = sum16(b);
  out[2] = sum16(c);
  out[3] = sum16(d);
#endif
}

/// Σ a_i b_i in the order of ops.h.
HWY_INLINE float dot16(const float* a, const float* b, std::int64_t n) {
  V16 acc = zero16();
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) acc = fma16(load16(a + i), load16(b + i), acc);
  if (i < n) acc = fma16(load16_part(a + i, n - i), load16_part(b + i, n - i), acc);
  return sum16(acc);
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per-target include guard
