// What goes into the caches: rounding, window rings, compressors, pools.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"
#include "kernels/math.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/round.h"

namespace deepinfer::ref {

void cache_round(const Exec& exec, const CacheRoundOp& op) {
  if (op.format.kind == RecordKind::kF32) return;
  exec.threads->parallel_for(op.rows, 16, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<std::uint8_t> record(static_cast<std::size_t>(op.format.bytes));
    for (std::int64_t t = begin; t < end; ++t) {
      encode_record(op.format, op.x + t * op.format.dim, record.data());
      decode_record(op.format, record.data(), op.x + t * op.format.dim);
    }
  });
}

void window_write(const Exec&, const WindowWriteOp& op) {
  for (const StepRows::Sequence& seq : op.step->sequences) {
    std::uint8_t* slot = op.window.data + seq.slot * op.window.slot_stride;
    for (std::int64_t r = std::max<std::int64_t>(0, seq.row_count - op.window.ring); r < seq.row_count; ++r) {
      const std::int64_t position = seq.start + r;
      encode_record(op.window.format, op.kv + (seq.row_begin + r) * op.window.format.dim,
                    slot + position % op.window.ring * op.window.format.bytes);
    }
  }
}

namespace {

// The (c, g) rows a group needs: slot i of the softmax, or null when it does not exist (no previous group).
struct Source {
  const float* c;
  const float* g;
  const float* ape;
};

// Row `position` of one sequence: from this step, or from the tail ring.
Source source_row(const CompressOp& op, const StepRows::Sequence& seq, std::int64_t position,
                  std::int64_t width) {
  const float* ape = op.ape ? op.ape + position % op.ratio * width : nullptr;
  if (position >= seq.start) {
    const std::int64_t row = seq.row_begin + position - seq.start;
    return {op.c + row * width, op.g + row * width, ape};
  }
  const float* tail = op.tail + seq.slot * op.tail_slot_stride + position % op.tail_ring * 2 * width;
  return {tail, tail + width, ape};
}

// entry[i] = Σ_s softmax_s(g_s[i]) c_s[i] over the slots, per channel.
void pool_group(const std::vector<Source>& slots, std::int64_t dim, Round round, float* out) {
  for (std::int64_t i = 0; i < dim; ++i) {
    const auto gate = [&](const Source& s) { return s.ape ? s.g[i] + s.ape[i] : s.g[i]; };
    float top = gate(slots[0]);
    for (const Source& s : slots) top = std::max(top, gate(s));
    float sum = 0;
    for (const Source& s : slots) sum += exp_f32(gate(s) - top);
    float acc = 0;
    for (const Source& s : slots) acc += exp_f32(gate(s) - top) / sum * s.c[i];
    out[i] = rounded(acc, round);
  }
}

}  // namespace

void compress(const Exec&, const CompressOp& op) {
  const std::int64_t width = op.dim * (op.overlap ? 2 : 1);
  std::int64_t written = 0;
  for (std::size_t s = 0; s < op.step->sequences.size(); ++s) {
    const StepRows::Sequence& seq = op.step->sequences[s];
    const std::int64_t first = seq.start / op.ratio;
    const std::int64_t last = (seq.start + seq.row_count) / op.ratio;
    for (std::int64_t group = first; group < last; ++group, ++written) {
      DI_CHECK(written < op.entries, "more groups finished than announced");
      float* out = op.out + written * op.dim;
      op.out_position[written] = group * op.ratio;
      op.out_sequence[written] = static_cast<std::int32_t>(s);
      if (op.ratio == 1) {
        const float* c = op.c + (seq.row_begin + group - seq.start) * width;
        for (std::int64_t i = 0; i < op.dim; ++i) out[i] = rounded(c[i], op.round);
        continue;
      }
      std::vector<Source> slots;
      if (op.overlap && group > 0) {
        for (std::int64_t i = 0; i < op.ratio; ++i) {
          slots.push_back(
              source_row(op, seq, (group - 1) * op.ratio + i, width));  // channels [0, dim): series A
        }
      }
      for (std::int64_t i = 0; i < op.ratio; ++i) {
        Source row = source_row(op, seq, group * op.ratio + i, width);
        if (op.overlap) {  // channels [dim, 2 dim): series B
          row.c += op.dim;
          row.g += op.dim;
          if (row.ape) row.ape += op.dim;
        }
        slots.push_back(row);
      }
      pool_group(slots, op.dim, op.round, out);
    }
    if (op.ratio == 1) continue;
    float* tail = op.tail + seq.slot * op.tail_slot_stride;
    for (std::int64_t r = std::max<std::int64_t>(0, seq.row_count - op.tail_ring); r < seq.row_count; ++r) {
      float* to = tail + (seq.start + r) % op.tail_ring * 2 * width;
      std::copy_n(op.c + (seq.row_begin + r) * width, width, to);
      std::copy_n(op.g + (seq.row_begin + r) * width, width, to + width);
    }
  }
  DI_CHECK(written == op.entries, "fewer groups finished than announced");
}

void pool_write(const Exec&, const PoolWriteOp& op) {
  for (std::int64_t e = 0; e < op.entries; ++e) {
    const StepRows::Sequence& seq = op.step->sequences[static_cast<std::size_t>(op.sequence[e])];
    encode_record(op.pool.format, op.x + e * op.pool.format.dim,
                  op.pool.entry(seq.blocks, op.position[e] / op.pool.ratio));
  }
}

}  // namespace deepinfer::ref
