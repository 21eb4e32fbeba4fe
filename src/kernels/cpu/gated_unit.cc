#include "kernels/cpu/gated_unit.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gated_unit.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/quantize-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

HWY_INLINE VF gate_value(VF gate, VF up, VF limit, VF weight) {
  const VF g = hn::IfThenElse(hn::Lt(limit, gate), limit, gate);
  const VF low = hn::Neg(limit);
  VF p = hn::IfThenElse(hn::Lt(limit, up), limit, up);
  p = hn::IfThenElse(hn::Lt(up, low), low, p);
  return hn::Mul(hn::Mul(vec_silu(g), p), weight);
}

void unit(float* g, const float* p, std::int64_t count, float limit, float weight,
          std::int64_t quantize_block) {
  const DF d;
  const VF l = hn::Set(d, limit), w = hn::Set(d, weight);
  const bool bf16 = quantize_block > 0;
  std::int64_t i = 0;
  for (; i + kVecLanes <= count; i += kVecLanes) {
    const VF v = gate_value(hn::LoadU(d, g + i), hn::LoadU(d, p + i), l, w);
    hn::StoreU(bf16 ? vec_bf16(v) : v, d, g + i);
  }
  for (; i < count; ++i) {
    const float v = silu_f32(std::min(g[i], limit)) * std::clamp(p[i], -limit, limit) * weight;
    g[i] = bf16 ? round_to_bf16(v) : v;
  }
  if (bf16) fp8_row_round_trip(g, count, quantize_block);
}

void add(float* sum, const float* y, std::int64_t count) {
  const DF d;
  std::int64_t i = 0;
  for (; i + kVecLanes <= count; i += kVecLanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, sum + i), hn::LoadU(d, y + i)), d, sum + i);
  }
  for (; i < count; ++i) sum[i] += y[i];
}

void to_bf16(float* x, std::int64_t count) {
  const DF d;
  std::int64_t i = 0;
  for (; i + kVecLanes <= count; i += kVecLanes) hn::StoreU(vec_bf16(hn::LoadU(d, x + i)), d, x + i);
  for (; i < count; ++i) x[i] = round_to_bf16(x[i]);
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {

HWY_EXPORT(unit);
HWY_EXPORT(add);
HWY_EXPORT(to_bf16);

void gated_unit(float* g, const float* p, std::int64_t count, float limit, float weight,
                std::int64_t quantize_block) {
  HWY_DYNAMIC_DISPATCH(unit)(g, p, count, limit, weight, quantize_block);
}
void add_row(float* sum, const float* y, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(add)(sum, y, count);
}
void bf16_row(float* x, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(to_bf16)(x, count);
}

}  // namespace deepinfer::cpu
#endif  // HWY_ONCE
