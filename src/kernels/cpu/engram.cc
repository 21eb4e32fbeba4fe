// Engram: gather of table rows and the gated addition to the streams.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"
#include "kernels/ref/ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/engram.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/records-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

void gather_rows(const EngramGatherOp& op, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    const std::uint8_t* codes = op.table + op.row_ids[i] * op.width;
    decode_e4m3(codes, op.scale + op.row_ids[i] * (op.width / 32), 32, op.width, op.out + i * op.width);
    // The decoder takes no NaN codes; a table that has one shows it.
    for (std::int64_t j = 0; j < op.width; ++j) {
      if ((codes[j] & 0x7f) == kE4m3Nan) op.out[i * op.width + j] = e4m3_to_f32(codes[j]);
    }
  }
}

void gate_rows(const EngramGateOp& op, std::int64_t begin, std::int64_t end) {
  const DF d;
  const std::int64_t dim = op.dim;
  const auto width = static_cast<float>(dim);
  const bool bf16 = op.round == Round::kBf16;
  for (std::int64_t t = begin; t < end; ++t) {
    const float* value = op.kv + (t * 5 + 4) * dim;
    for (std::int64_t j = 0; j < 4; ++j) {
      float* x = op.x + (t * 4 + j) * dim;
      const float* key = op.kv + (t * 5 + j) * dim;
      const float* qk = op.qk_weight + j * dim;
      V16 dot = zero16(), xx = zero16(), kk = zero16();
      for (std::int64_t i = 0; i < dim; i += 16) {
        const V16 xv = load16(x + i), kv = load16(key + i);
        dot = fma16(mul16(xv, load16(qk + i)), kv, dot);
        xx = fma16(xv, xv, xx);
        kk = fma16(kv, kv, kk);
      }
      const float rstd =
          1.0f / std::sqrt(sum16(xx) / width + op.eps) * (1.0f / std::sqrt(sum16(kk) / width + op.eps));
      const float s = sum16(dot) * rstd * (1.0f / std::sqrt(width));
      float gate = sigmoid_f32(std::copysign(std::sqrt(std::max(std::abs(s), 1e-6f)), s));
      if (op.image && op.image[t]) gate = 0.0f;
      const VF g = hn::Set(d, gate);
      for (std::int64_t i = 0; i < dim; i += kVecLanes) {
        const VF y = hn::Add(hn::LoadU(d, x + i), hn::Mul(g, hn::LoadU(d, value + i)));
        hn::StoreU(bf16 ? vec_bf16(y) : y, d, x + i);
      }
    }
  }
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {

HWY_EXPORT(gather_rows);
HWY_EXPORT(gate_rows);

void engram_gather(const Exec& exec, const EngramGatherOp& op) {
  if (op.width % 32 != 0) return ref::engram_gather(exec, op);
  for_rows(exec, op.rows * op.count, op.width, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(gather_rows)(op, begin, end);
  });
}

void engram_gate(const Exec& exec, const EngramGateOp& op) {
  if (op.dim % 16 != 0) return ref::engram_gate(exec, op);
  for_rows(exec, op.rows, 5 * op.dim, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(gate_rows)(op, begin, end);
  });
}

}  // namespace deepinfer::cpu
#endif  // HWY_ONCE
