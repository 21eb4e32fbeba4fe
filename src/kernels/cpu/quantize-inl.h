// The block quantisers of tensor/quantize.h on vectors: the value a number has after encode and decode, and
// the codes.
#include "kernels/cpu/simd-inl.h"

#if defined(DI_KERNELS_QUANTIZE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DI_KERNELS_QUANTIZE_INL_H
#undef DI_KERNELS_QUANTIZE_INL_H
#else
#define DI_KERNELS_QUANTIZE_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

/// Largest magnitude of n values; NaN counts as larger than everything.
HWY_INLINE float block_amax(const float* p, std::int64_t n) {
  const DI d;
  auto best = hn::Zero(d);
  const auto mask = hn::Set(d, 0x7fffffff);
  std::int64_t i = 0;
  for (; i + kVecLanes <= n; i += kVecLanes) {
    best = hn::Max(best, hn::And(hn::BitCast(d, hn::LoadU(DF(), p + i)), mask));
  }
  std::int32_t top = hn::GetLane(hn::MaxOfLanes(d, best));
  for (; i < n; ++i) top = std::max(top, std::bit_cast<std::int32_t>(p[i]) & 0x7fffffff);
  return std::bit_cast<float>(top);
}

struct Ue8m0Scale {
  std::uint8_t byte;
  float multiplier;
  float reciprocal;
};
HWY_INLINE Ue8m0Scale scale_from_byte(std::uint8_t byte) {
  return {byte, ue8m0_to_f32(byte), ue8m0_reciprocal(byte)};
}
HWY_INLINE Ue8m0Scale fp8_scale(float amax) {
  return scale_from_byte(ceil_log2_ue8m0((amax < 1e-4f ? 1e-4f : amax) * (1.0f / 448.0f)));
}
HWY_INLINE Ue8m0Scale fp4_scale(float amax) {
  constexpr float kFloor = 6.0f * 0x1p-126f;
  return scale_from_byte(ceil_log2_ue8m0((amax < kFloor ? kFloor : amax) * (1.0f / 6.0f)));
}

/// The nearest e4m3 value of each lane, ties to even, saturating at 448; NaN stays NaN.
HWY_INLINE VF vec_round_e4m3(VF x) {
  const DF d;
  const DU du;
  const VU bits = hn::BitCast(du, x);
  const VU sign = hn::And(bits, hn::Set(du, 0x80000000u));
  const VU mag = hn::And(bits, hn::Set(du, 0x7fffffffu));
  const VF a = hn::BitCast(d, mag);
  // Normal: round at bit 20. Below 2^-6: the sum with 2^14 rounds to steps of 2^-9.
  const VU odd = hn::And(hn::ShiftRight<20>(mag), hn::Set(du, 1u));
  const VU up = hn::And(hn::Add(mag, hn::Add(odd, hn::Set(du, 0x7ffffu))), hn::Set(du, 0xfff00000u));
  const VF small = hn::Sub(hn::Add(a, hn::Set(d, 0x1p14f)), hn::Set(d, 0x1p14f));
  VF r = hn::IfThenElse(hn::Lt(a, hn::Set(d, 0x1p-6f)), small, hn::BitCast(d, up));
  r = hn::IfThenElse(hn::Ge(a, hn::Set(d, kE4m3Max)), hn::Set(d, kE4m3Max), r);
  r = hn::IfThenElse(hn::IsNaN(x), x, r);
  return hn::BitCast(d, hn::Or(hn::BitCast(du, r), sign));
}

/// fp8_round_trip of one block in place.
HWY_INLINE void fp8_block_round_trip(float* p, std::int64_t n) {
  const DF d;
  const Ue8m0Scale s = fp8_scale(block_amax(p, n));
  const VF multiplier = hn::Set(d, s.multiplier), reciprocal = hn::Set(d, s.reciprocal);
  std::int64_t i = 0;
  for (; i + kVecLanes <= n; i += kVecLanes) {
    const VF v = vec_round_e4m3(hn::Mul(hn::LoadU(d, p + i), reciprocal));
    hn::StoreU(hn::Mul(v, multiplier), d, p + i);
  }
  for (; i < n; ++i) p[i] = e4m3_to_f32(f32_to_e4m3(p[i] * s.reciprocal)) * s.multiplier;
}

HWY_INLINE void fp8_row_round_trip(float* p, std::int64_t n, std::int64_t block) {
  for (std::int64_t i = 0; i < n; i += block) fp8_block_round_trip(p + i, std::min(block, n - i));
}

/// The nearest e2m1 value of each lane, ties to even, saturating at 6; NaN becomes a zero of its sign.
HWY_INLINE VF vec_round_e2m1(VF x) {
  const DF d;
  const DU du;
  const VU sign = hn::And(hn::BitCast(du, x), hn::Set(du, 0x80000000u));
  const VF a = hn::BitCast(d, hn::AndNot(hn::Set(du, 0x80000000u), hn::BitCast(du, x)));
  // Steps of 1/2 below 2, of 1 below 4, of 2 above: sums whose last bit weighs as much.
  const VF low = hn::Sub(hn::Add(a, hn::Set(d, 0x1p22f)), hn::Set(d, 0x1p22f));
  const VF middle = hn::Sub(hn::Add(a, hn::Set(d, 0x1p23f)), hn::Set(d, 0x1p23f));
  const VF high = hn::Sub(hn::Add(a, hn::Set(d, 0x1p24f)), hn::Set(d, 0x1p24f));
  VF r = hn::IfThenElse(hn::Lt(a, hn::Set(d, 2.0f)), low, middle);
  r = hn::IfThenElse(hn::Ge(a, hn::Set(d, 4.0f)), high, r);
  r = hn::IfThenElse(hn::Ge(a, hn::Set(d, kE2m1Max)), hn::Set(d, kE2m1Max), r);
  r = hn::IfThenElse(hn::IsNaN(x), hn::Zero(d), r);
  return hn::BitCast(d, hn::Or(hn::BitCast(du, r), sign));
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per-target include guard
