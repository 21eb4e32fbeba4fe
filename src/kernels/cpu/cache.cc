// What goes into the caches: rounding, encoding into window rings and pools, compressors.
#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cache.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/quantize-inl.h"

#ifndef DI_KERNELS_CPU_CACHE_ONCE
#define DI_KERNELS_CPU_CACHE_ONCE
namespace deepinfer::cpu {
namespace {

// One position's contribution to a compressed entry: values, gates and the gates' position bias (or null).
struct Slot {
  const float* c;
  const float* g;
  const float* ape;
};

}  // namespace
}  // namespace deepinfer::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

// x / scale to the nearest e2m1 and back, one block of n values.
HWY_INLINE void fp4_block_round_trip(float* p, std::int64_t n) {
  const DF d;
  const Ue8m0Scale s = fp4_scale(block_amax(p, n));
  const VF multiplier = hn::Set(d, s.multiplier), reciprocal = hn::Set(d, s.reciprocal);
  std::int64_t i = 0;
  for (; i + kVecLanes <= n; i += kVecLanes) {
    hn::StoreU(hn::Mul(vec_round_e2m1(hn::Mul(hn::LoadU(d, p + i), reciprocal)), multiplier), d, p + i);
  }
  for (; i < n; ++i) p[i] = e2m1_to_f32(f32_to_e2m1(p[i] * s.reciprocal)) * s.multiplier;
}

// The same with an e4m3 scale, by which is really divided.
HWY_INLINE void fp4_e4m3_block_round_trip(float* p, std::int64_t n) {
  const DF d;
  constexpr float kFloor = 6.0f * 0x1p-9f;
  const float amax = block_amax(p, n);
  const float kept = amax < kFloor ? kFloor : amax;
  const bool finite = std::bit_cast<std::uint32_t>(kept) < kF32InfBits;
  const float scale = e4m3_to_f32(finite ? f32_to_e4m3(kept / 6.0f) : kE4m3Nan);
  const VF s = hn::Set(d, scale);
  std::int64_t i = 0;
  for (; i + kVecLanes <= n; i += kVecLanes) {
    hn::StoreU(hn::Mul(vec_round_e2m1(hn::Div(hn::LoadU(d, p + i), s)), s), d, p + i);
  }
  for (; i < n; ++i) p[i] = e2m1_to_f32(f32_to_e2m1(p[i] / scale)) * scale;
}

void round_rows(const CacheRoundOp& op, std::int64_t begin, std::int64_t end) {
  const RecordFormat& f = op.format;
  for (std::int64_t t = begin; t < end; ++t) {
    float* x = op.x + t * f.dim;
    const std::int64_t plain = f.dim - f.rope;
    switch (f.kind) {
      case RecordKind::kF32:
        break;
      case RecordKind::kFp8Block32:
        fp8_row_round_trip(x, f.dim, f.block);
        break;
      case RecordKind::kFp4Block16:
        for (std::int64_t i = 0; i < f.dim; i += f.block)
          fp4_e4m3_block_round_trip(x + i, std::min(f.block, f.dim - i));
        break;
      case RecordKind::kFp4Block32:
        for (std::int64_t i = 0; i < f.dim; i += f.block)
          fp4_block_round_trip(x + i, std::min(f.block, f.dim - i));
        break;
      case RecordKind::kFp8Split64:
        for (std::int64_t i = plain; i < f.dim; ++i) x[i] = round_to_bf16(x[i]);
        [[fallthrough]];
      case RecordKind::kFp8Split64F32:
        fp8_row_round_trip(x, plain, f.block);
        break;
    }
  }
}

// out[i] = Σ_s softmax_s(g_s[i] + ape_s[i]) c_s[i].
void pool_slots(const Slot* slots, std::int64_t count, std::int64_t dim, bool bf16, float* out) {
  const DF d;
  std::int64_t i = 0;
  for (; i + kVecLanes <= dim; i += kVecLanes) {
    const auto gate = [&](const Slot& s) HWY_ATTR {
      const VF g = hn::LoadU(d, s.g + i);
      return s.ape ? hn::Add(g, hn::LoadU(d, s.ape + i)) : g;
    };
    VF top = gate(slots[0]);
    for (std::int64_t s = 0; s < count; ++s) {
      const VF g = gate(slots[s]);
      top = hn::IfThenElse(hn::Lt(top, g), g, top);
    }
    VF sum = hn::Zero(d);
    for (std::int64_t s = 0; s < count; ++s) sum = hn::Add(sum, vec_exp(hn::Sub(gate(slots[s]), top)));
    VF acc = hn::Zero(d);
    for (std::int64_t s = 0; s < count; ++s) {
      const VF w = hn::Div(vec_exp(hn::Sub(gate(slots[s]), top)), sum);
      acc = hn::Add(acc, hn::Mul(w, hn::LoadU(d, slots[s].c + i)));
    }
    hn::StoreU(bf16 ? vec_bf16(acc) : acc, d, out + i);
  }
  for (; i < dim; ++i) {
    const auto gate = [&](const Slot& s) { return s.ape ? s.g[i] + s.ape[i] : s.g[i]; };
    float top = gate(slots[0]);
    for (std::int64_t s = 0; s < count; ++s) top = std::max(top, gate(slots[s]));
    float sum = 0, acc = 0;
    for (std::int64_t s = 0; s < count; ++s) sum += exp_f32(gate(slots[s]) - top);
    for (std::int64_t s = 0; s < count; ++s) acc += exp_f32(gate(slots[s]) - top) / sum * slots[s].c[i];
    out[i] = bf16 ? round_to_bf16(acc) : acc;
  }
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {

HWY_EXPORT(round_rows);
HWY_EXPORT(pool_slots);

void cache_round(const Exec& exec, const CacheRoundOp& op) {
  if (op.format.kind == RecordKind::kF32) return;
  for_rows(exec, op.rows, op.format.dim, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(round_rows)(op, begin, end);
  });
}

void window_write(const Exec& exec, const WindowWriteOp& op) {
  const std::int64_t dim = op.window.format.dim;
  for (const StepRows::Sequence& seq : op.step->sequences) {
    std::uint8_t* slot = op.window.data + seq.slot * op.window.slot_stride;
    const std::int64_t first = std::max<std::int64_t>(0, seq.row_count - op.window.ring);
    for_rows(exec, seq.row_count - first, 8 * dim, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = first + begin; r < first + end; ++r) {
        encode_record(op.window.format, op.kv + (seq.row_begin + r) * dim,
                      slot + (seq.start + r) % op.window.ring * op.window.format.bytes);
      }
    });
  }
}

void pool_write(const Exec& exec, const PoolWriteOp& op) {
  for_rows(exec, op.entries, 8 * op.pool.format.dim, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t e = begin; e < end; ++e) {
      const StepRows::Sequence& seq = op.step->sequences[static_cast<std::size_t>(op.sequence[e])];
      encode_record(op.pool.format, op.x + e * op.pool.format.dim,
                    op.pool.entry(seq.blocks, op.position[e] / op.pool.ratio));
    }
  });
}

namespace {

// Row `position` of a sequence, channels from `channel` on: of this step, or from the tail ring.
Slot slot_of(const CompressOp& op, const StepRows::Sequence& seq, std::int64_t position, std::int64_t width,
             std::int64_t channel) {
  const float* ape = op.ape ? op.ape + position % op.ratio * width + channel : nullptr;
  if (position >= seq.start) {
    const std::int64_t at = (seq.row_begin + position - seq.start) * width + channel;
    return {op.c + at, op.g + at, ape};
  }
  const float* tail =
      op.tail + seq.slot * op.tail_slot_stride + position % op.tail_ring * 2 * width + channel;
  return {tail, tail + width, ape};
}

void compress_group(const CompressOp& op, const StepRows::Sequence& seq, std::int64_t group,
                    std::int64_t width, float* out) {
  if (op.ratio == 1) {
    const float* c = op.c + (seq.row_begin + group - seq.start) * width;
    for (std::int64_t i = 0; i < op.dim; ++i) out[i] = op.round == Round::kBf16 ? round_to_bf16(c[i]) : c[i];
    return;
  }
  auto* slots = scratch<Slot>(Scratch::kScores, 2 * op.ratio);
  std::int64_t count = 0;
  if (op.overlap && group > 0) {
    for (std::int64_t i = 0; i < op.ratio; ++i)
      slots[count++] = slot_of(op, seq, (group - 1) * op.ratio + i, width, 0);
  }
  for (std::int64_t i = 0; i < op.ratio; ++i) {
    slots[count++] = slot_of(op, seq, group * op.ratio + i, width, op.overlap ? op.dim : 0);
  }
  HWY_DYNAMIC_DISPATCH(pool_slots)(slots, count, op.dim, op.round == Round::kBf16, out);
}

}  // namespace

void compress(const Exec& exec, const CompressOp& op) {
  const std::int64_t width = op.dim * (op.overlap ? 2 : 1);
  std::int64_t written = 0;
  for (std::size_t s = 0; s < op.step->sequences.size(); ++s) {
    const StepRows::Sequence& seq = op.step->sequences[s];
    const std::int64_t first = seq.start / op.ratio;
    const std::int64_t groups = (seq.start + seq.row_count) / op.ratio - first;
    DI_CHECK(written + groups <= op.entries, "more groups finished than announced");
    for (std::int64_t i = 0; i < groups; ++i) {
      op.out_position[written + i] = (first + i) * op.ratio;
      op.out_sequence[written + i] = static_cast<std::int32_t>(s);
    }
    for_rows(exec, groups, 4 * op.ratio * op.dim, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        compress_group(op, seq, first + i, width, op.out + (written + i) * op.dim);
    });
    written += groups;
    if (op.ratio == 1) continue;
    // The ring is read by the groups above, so it changes last.
    float* tail = op.tail + seq.slot * op.tail_slot_stride;
    for (std::int64_t r = std::max<std::int64_t>(0, seq.row_count - op.tail_ring); r < seq.row_count; ++r) {
      float* to = tail + (seq.start + r) % op.tail_ring * 2 * width;
      std::copy_n(op.c + (seq.row_begin + r) * width, width, to);
      std::copy_n(op.g + (seq.row_begin + r) * width, width, to + width);
    }
  }
  DI_CHECK(written == op.entries, "fewer groups finished than announced");
}

}  // namespace deepinfer::cpu
#endif  // HWY_ONCE
