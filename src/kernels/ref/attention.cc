// One softmax over window and selected history, with a sink in the denominator. All keys of a row are
// gathered first, in the order ops.h fixes; then each head runs over them in blocks with a running maximum.
// The blocks matter with bf16 activations: a weight is rounded relative to the maximum known when its block
// is reached.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/math.h"
#include "kernels/ref/reductions.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/round.h"

namespace deepinfer::ref {
namespace {

// Keys [count, dim] of row t, window_keys of them from the window.
std::vector<float> gather_keys(const AttentionOp& op, std::int64_t t, std::int64_t& window_keys) {
  const StepRows& step = *op.step;
  const StepRows::Sequence& seq =
      step.sequences[static_cast<std::size_t>(step.sequence[static_cast<std::size_t>(t)])];
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
                    op.ring.data + seq.slot * op.ring.slot_stride + p % op.ring.ring * op.ring.format.bytes,
                    key);
    }
  }
  window_keys = static_cast<std::int64_t>(keys.size()) / op.dim;
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

struct RunningSoftmax {
  float top = -1e30f;
  float sum = 0;
};

// Folds keys [count, dim] into the running softmax of one head, kAttentionBlock keys at a time.
void add_keys(const AttentionOp& op, const float* q, const float* keys, std::int64_t count,
              RunningSoftmax& state, float* o) {
  for (std::int64_t begin = 0; begin < count; begin += kAttentionBlock) {
    const std::int64_t size = std::min(kAttentionBlock, count - begin);
    std::array<float, kAttentionBlock> p;
    float top = state.top;
    for (std::int64_t j = 0; j < size; ++j) {
      float& logit = p[static_cast<std::size_t>(j)];
      logit = dot(q, keys + (begin + j) * op.dim, op.dim) * op.scale;
      top = std::max(top, logit);
    }
    const float shrink = exp_f32(state.top - top);
    state.top = top;
    // The denominator adds unrounded weights, in 16 interleaved partial sums.
    std::array<float, kLanes> lanes{};
    for (std::int64_t j = 0; j < size; ++j) {
      float& w = p[static_cast<std::size_t>(j)];
      w = exp_f32(w - top);
      lanes[static_cast<std::size_t>(j % kLanes)] += w;
      w = rounded(w, op.round);
    }
    state.sum = state.sum * shrink + sum_lanes(lanes);
    for (std::int64_t i = 0; i < op.dim; ++i) o[i] *= shrink;
    for (std::int64_t j = 0; j < size; ++j) {
      const float w = p[static_cast<std::size_t>(j)];
      const float* key = keys + (begin + j) * op.dim;
      for (std::int64_t i = 0; i < op.dim; ++i) o[i] = std::fma(w, key[i], o[i]);
    }
  }
}

}  // namespace

void attention(const Exec& exec, const AttentionOp& op) {
  exec.threads->parallel_for(op.step->rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      std::int64_t window_keys = 0;
      const std::vector<float> keys = gather_keys(op, t, window_keys);
      const std::int64_t count = static_cast<std::int64_t>(keys.size()) / op.dim;
      for (std::int64_t h = 0; h < op.heads; ++h) {
        float* o = op.o + (t * op.heads + h) * op.dim;
        std::fill(o, o + op.dim, 0.0f);
        RunningSoftmax state;
        // History starts a block of its own.
        add_keys(op, op.q + (t * op.heads + h) * op.dim, keys.data(), window_keys, state, o);
        add_keys(op, op.q + (t * op.heads + h) * op.dim, keys.data() + window_keys * op.dim,
                 count - window_keys, state, o);
        const float denominator = state.sum + exp_f32(op.sink[h] - state.top);
        for (std::int64_t i = 0; i < op.dim; ++i) o[i] = rounded(o[i] / denominator, op.round);
      }
    }
  });
}

}  // namespace deepinfer::ref
