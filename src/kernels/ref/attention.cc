// One softmax over window and selected history, with a sink in the denominator. All keys of a row are gathered first, in
// the order ops.h fixes; then each head is a textbook softmax.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/math.h"
#include "kernels/ref/reductions.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/round.h"

namespace deepinfer::ref {
namespace {

// Keys [count, dim] of row t.
std::vector<float> gather_keys(const AttentionOp& op, std::int64_t t) {
  const StepRows& step = *op.step;
  const StepRows::Sequence& seq = step.sequences[static_cast<std::size_t>(step.sequence[static_cast<std::size_t>(t)])];
  const std::int64_t position = step.position[static_cast<std::size_t>(t)];
  std::vector<float> keys;
  const auto append = [&] {
    keys.resize(keys.size() + static_cast<std::size_t>(op.dim));
    return keys.data() + keys.size() - op.dim;
  };
  for (std::int64_t p = std::max<std::int64_t>(0, position - op.window + 1); p <= position; ++p) {
    float* key = append();
    if (p >= seq.start) {
      std::copy_n(op.fresh + (seq.row_begin + p - seq.start) * op.dim, op.dim, key);
    } else {
      decode_record(op.ring.format,
                    op.ring.data + seq.slot * op.ring.slot_stride + p % op.ring.ring * op.ring.format.bytes, key);
    }
  }
  if (op.pool.data == nullptr) return keys;
  if (op.selected) {
    for (std::int32_t i = 0; i < op.selected_count[t]; ++i) {
      decode_record(op.pool.format, op.pool.entry(seq.blocks, op.selected[t * op.top_k + i]), append());
    }
  } else {
    for (std::int64_t j = 0; j < (position + 1) / op.pool.ratio; ++j) {
      decode_record(op.pool.format, op.pool.entry(seq.blocks, j), append());
    }
  }
  return keys;
}

}  // namespace

void attention(const Exec& exec, const AttentionOp& op) {
  exec.threads->parallel_for(op.step->rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::vector<float> keys = gather_keys(op, t);
      const std::int64_t count = static_cast<std::int64_t>(keys.size()) / op.dim;
      std::vector<float> p(static_cast<std::size_t>(count));
      for (std::int64_t h = 0; h < op.heads; ++h) {
        const float* q = op.q + (t * op.heads + h) * op.dim;
        float* o = op.o + (t * op.heads + h) * op.dim;
        float top = -1e30f;
        for (std::int64_t j = 0; j < count; ++j) {
          p[static_cast<std::size_t>(j)] = dot(q, keys.data() + j * op.dim, op.dim) * op.scale;
          top = std::max(top, p[static_cast<std::size_t>(j)]);
        }
        // The denominator adds the unrounded weights in 16 interleaved partial sums, then the sink.
        std::array<float, kLanes> lanes{};
        for (std::int64_t j = 0; j < count; ++j) {
          float& w = p[static_cast<std::size_t>(j)];
          w = exp_f32(w - top);
          lanes[static_cast<std::size_t>(j % kLanes)] += w;
          w = rounded(w, op.round);
        }
        const float denominator = sum_lanes(lanes) + exp_f32(op.sink[h] - top);
        std::fill(o, o + op.dim, 0.0f);
        for (std::int64_t j = 0; j < count; ++j) {
          const float w = p[static_cast<std::size_t>(j)];
          const float* key = keys.data() + j * op.dim;
          for (std::int64_t i = 0; i < op.dim; ++i) o[i] = std::fma(w, key[i], o[i]);
        }
        for (std::int64_t i = 0; i < op.dim; ++i) o[i] = rounded(o[i] / denominator, op.round);
      }
    }
  });
}

}  // namespace deepinfer::ref
