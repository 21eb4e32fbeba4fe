// Attention with a sink. A task is a run of neighbouring rows of one sequence and a share of the heads. Keys
// of a row come in up to three pieces of consecutive vectors: window records decoded from the ring (once for
// all rows of the task), fresh window rows (read in place), pool entries (decoded for each row, or once for
// all rows where every entry is visible). Passes over a row: logits of all keys; then block by block
// (kAttentionBlock, ops.h) the weights under the running maximum of each head and the weighted sum in key
// order.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/thread_pool.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/workspace.h"
#include "kernels/ref/ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/dots-inl.h"
#include "kernels/cpu/records-inl.h"

#ifndef DI_KERNELS_CPU_ATTENTION_ONCE
#define DI_KERNELS_CPU_ATTENTION_ONCE
namespace deepinfer::cpu {
namespace {

// Rows [row, row + rows) of sequence `sequence`.
struct RowRun {
  std::int32_t sequence;
  std::int32_t row;
  std::int32_t rows;
};

}  // namespace
}  // namespace deepinfer::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

constexpr std::int64_t kKeyTile =
    64;  // keys that stay in the second-level cache while all heads pass over them

struct Piece {
  const float* keys;
  std::int64_t count;
};

// o_h += Σ_j p_h[j] key_j for kHeads heads and 16 * kColumns channels, j ascending.
template <int kHeads, int kColumns>
HWY_INLINE void weigh_block(const float* p, std::int64_t p_stride, const float* keys, std::int64_t count,
                            std::int64_t dim, bool first, float* o) {
  V16 acc[kHeads][kColumns];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) acc[h][c] = first ? zero16() : load16(o + h * dim + 16 * c);
  }
  for (std::int64_t j = 0; j < count; ++j) {
    V16 k[kColumns];
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) k[c] = load16(keys + j * dim + 16 * c);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) acc[h][c] = fma16(p[h * p_stride + j], k[c], acc[h][c]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) store16(acc[h][c], o + h * dim + 16 * c);
  }
}

template <int kHeads>
HWY_INLINE void weigh_heads(const float* p, std::int64_t p_stride, const float* keys, std::int64_t count,
                            std::int64_t dim, bool first, float* o) {
  constexpr int kColumns = kVecs == 1 ? 4 : 2;
  std::int64_t i = 0;
  for (; i + 16 * kColumns <= dim; i += 16 * kColumns) {
    weigh_block<kHeads, kColumns>(p, p_stride, keys + i, count, dim, first, o + i);
  }
  for (; i < dim; i += 16) weigh_block<kHeads, 1>(p, p_stride, keys + i, count, dim, first, o + i);
}

HWY_INLINE void weigh(const float* p, std::int64_t p_stride, std::int64_t heads, const float* keys,
                      std::int64_t count, std::int64_t dim, bool first, float* o) {
  constexpr int kHeads = kVecs == 1 ? 4 : 2;
  std::int64_t h = 0;
  for (; h + kHeads <= heads; h += kHeads) {
    weigh_heads<kHeads>(p + h * p_stride, p_stride, keys, count, dim, first, o + h * dim);
  }
  for (; h < heads; ++h) weigh_heads<1>(p + h * p_stride, p_stride, keys, count, dim, first, o + h * dim);
}

// One block of one head: logits p[0..count) become weights in place under the running maximum `top`, `sum`
// takes them in. Returns the factor by which what was gathered before shrinks. p is readable and writable up
// to a multiple of 16.
HWY_INLINE float softmax_block(float* p, std::int64_t count, float scale, bool bf16, float& top, float& sum) {
  const DF d;
  const std::int64_t whole = count / kVecLanes * kVecLanes;
  VF tops = hn::Set(d, top);
  for (std::int64_t j = 0; j < whole; j += kVecLanes) {
    const VF l = hn::Mul(hn::LoadU(d, p + j), hn::Set(d, scale));
    hn::StoreU(l, d, p + j);
    tops = hn::IfThenElse(hn::Lt(tops, l), l, tops);
  }
  float highest = hn::GetLane(hn::MaxOfLanes(d, tops));
  for (std::int64_t j = whole; j < count; ++j) {
    p[j] *= scale;
    highest = std::max(highest, p[j]);
  }
  V16 sums = zero16();
  for (std::int64_t j = 0; j < count; j += 16) {
    V16 w = load16(p + j);
    for (int i = 0; i < kVecs; ++i) w.v[i] = vec_exp(hn::Sub(w.v[i], hn::Set(d, highest)));
    if (j + 16 > count) {
      store16(w, p + j);
      std::fill(p + count, p + j + 16, 0.0f);
      w = load16(p + j);
    }
    sums = add16(sums, w);
    store16(round16(w, bf16), p + j);
  }
  const float shrink = exp_f32(top - highest);
  top = highest;
  sum = sum * shrink + sum16(sums);
  return shrink;
}

HWY_INLINE void scale_row(float* o, std::int64_t dim, float factor) {
  const VF by = hn::Set(DF(), factor);
  for (std::int64_t i = 0; i < dim; i += 16) {
    V16 v = load16(o + i);
    for (int k = 0; k < kVecs; ++k) v.v[k] = hn::Mul(v.v[k], by);
    store16(v, o + i);
  }
}

// Per head of a task, beside its logits.
struct HeadState {
  float top, sum;
};

// Folds the keys of `pieces` (logits in p, `stride` apart) into the running softmax of all heads, block by
// block.
template <std::size_t kPieces>
HWY_INLINE void fold_keys(const std::array<Piece, kPieces>& pieces, const AttentionOp& op, std::int64_t heads,
                          float* p, std::int64_t stride, bool& first, HeadState* state, float* o) {
  const bool bf16 = op.round == Round::kBf16;
  std::int64_t count = 0;
  for (const Piece& piece : pieces) count += piece.count;
  std::size_t piece = 0;
  std::int64_t used = 0;  // keys of pieces[piece] already folded in
  for (std::int64_t begin = 0; begin < count; begin += kAttentionBlock) {
    const std::int64_t size = std::min(kAttentionBlock, count - begin);
    for (std::int64_t h = 0; h < heads; ++h) {
      const float shrink =
          softmax_block(p + h * stride + begin, size, op.scale, bf16, state[h].top, state[h].sum);
      if (!first && shrink != 1.0f) scale_row(o + h * op.dim, op.dim, shrink);
    }
    for (std::int64_t done = 0; done < size;) {
      while (used == pieces[piece].count) {
        ++piece;
        used = 0;
      }
      const std::int64_t part = std::min(size - done, pieces[piece].count - used);
      weigh(p + begin + done, stride, heads, pieces[piece].keys + used * op.dim, part, op.dim, first, o);
      first = false;
      used += part;
      done += part;
    }
  }
}

void attention_rows(const AttentionOp& op, const RowRun& run, std::int64_t head_begin,
                    std::int64_t head_end) {
  const StepRows& step = *op.step;
  const StepRows::Sequence& seq = step.sequences[static_cast<std::size_t>(run.sequence)];
  const std::int64_t dim = op.dim, heads = head_end - head_begin;
  const std::int64_t first_position = step.position[static_cast<std::size_t>(run.row)];
  const std::int64_t last_position = step.position[static_cast<std::size_t>(run.row + run.rows - 1)];
  const bool pool = op.pool.data != nullptr;
  // Window positions before the step, oldest of any row first.
  const std::int64_t ring_begin =
      std::min(seq.start, std::max<std::int64_t>(0, first_position - op.window + 1));
  const std::int64_t ring_count = seq.start - ring_begin;
  const std::int64_t pool_most = !pool ? 0 : op.selected ? op.top_k : (last_position + 1) / op.pool.ratio;
  auto* ring_keys = scratch<float>(Scratch::kKeys, (ring_count + pool_most) * dim);
  float* pool_keys = ring_keys + ring_count * dim;
  for (std::int64_t i = 0; i < ring_count; ++i) {
    const std::int64_t p = ring_begin + i;
    decode_record_16(op.ring.format,
                     op.ring.data + seq.slot * op.ring.slot_stride + p % op.ring.ring * op.ring.format.bytes,
                     ring_keys + i * dim);
  }
  if (pool && !op.selected) {
    for (std::int64_t j = 0; j < pool_most; ++j) {
      decode_record_16(op.pool.format, op.pool.entry(seq.blocks, j), pool_keys + j * dim);
    }
  }
  // Logits of the window, then from the next multiple of 16 those of the history.
  const std::int64_t stride = (op.window + 15) / 16 * 16 + (pool_most + 15) / 16 * 16;
  auto* p = scratch<float>(Scratch::kScores, stride * heads + 2 * heads);
  auto* state = reinterpret_cast<HeadState*>(p + stride * heads);
  for (std::int64_t t = run.row; t < run.row + run.rows; ++t) {
    const std::int64_t position = step.position[static_cast<std::size_t>(t)];
    const std::int64_t begin = std::max<std::int64_t>(0, position - op.window + 1);
    std::array<Piece, 2> recent = {};
    std::array<Piece, 1> history = {};
    if (begin < seq.start)
      recent[0] = {ring_keys + (begin - ring_begin) * dim, std::min(position + 1, seq.start) - begin};
    const std::int64_t fresh_begin = std::max(begin, seq.start);
    if (fresh_begin <= position) {
      recent[1] = {op.fresh + (seq.row_begin + fresh_begin - seq.start) * dim, position + 1 - fresh_begin};
    }
    if (pool && op.selected) {
      for (std::int32_t i = 0; i < op.selected_count[t]; ++i) {
        decode_record_16(op.pool.format, op.pool.entry(seq.blocks, op.selected[t * op.top_k + i]),
                         pool_keys + i * dim);
      }
      history[0] = {pool_keys, op.selected_count[t]};
    } else if (pool) {
      history[0] = {pool_keys, (position + 1) / op.pool.ratio};
    }
    const float* q = op.q + (t * op.heads + head_begin) * dim;
    float* o = op.o + (t * op.heads + head_begin) * dim;
    const auto logits = [&](const Piece& piece, float* to) {
      for (std::int64_t j = 0; j < piece.count; j += kKeyTile) {
        dots(q, heads, piece.keys + j * dim, std::min(kKeyTile, piece.count - j), dim, to + j, stride);
      }
    };
    float* history_p = p + (recent[0].count + recent[1].count + 15) / 16 * 16;
    logits(recent[0], p);
    logits(recent[1], p + recent[0].count);
    logits(history[0], history_p);
    std::fill(state, state + heads, HeadState{-1e30f, 0.0f});
    bool first = true;
    fold_keys(recent, op, heads, p, stride, first, state, o);
    fold_keys(history, op, heads, history_p, stride, first, state, o);
    const bool bf16 = op.round == Round::kBf16;
    for (std::int64_t h = 0; h < heads; ++h) {
      const VF by = hn::Set(DF(), state[h].sum + exp_f32(op.sink[head_begin + h] - state[h].top));
      for (std::int64_t i = 0; i < dim; i += 16) {
        V16 v = load16(o + h * dim + i);
        for (int k = 0; k < kVecs; ++k) v.v[k] = hn::Div(v.v[k], by);
        store16(round16(v, bf16), o + h * dim + i);
      }
    }
  }
}

bool attention_formats(const AttentionOp& op) {
  return op.dim % 16 == 0 && has_vector_decoder(op.ring.format) &&
         (op.pool.data == nullptr || has_vector_decoder(op.pool.format));
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {

HWY_EXPORT(attention_rows);
HWY_EXPORT(attention_formats);

void attention(const Exec& exec, const AttentionOp& op) {
  if (!HWY_DYNAMIC_DISPATCH(attention_formats)(op)) return ref::attention(exec, op);
  const StepRows& step = *op.step;
  if (step.rows == 0) return;
  const std::int64_t threads = exec.threads->thread_count();
  // Runs short enough for every thread to get several, long enough to share decoded keys.
  const std::int64_t run_rows = std::clamp<std::int64_t>(step.rows / (4 * threads), 1, 16);
  auto* runs = scratch<RowRun>(Scratch::kPlan, step.rows);
  std::int64_t count = 0;
  for (std::size_t s = 0; s < step.sequences.size(); ++s) {
    const StepRows::Sequence& seq = step.sequences[s];
    for (std::int64_t r = 0; r < seq.row_count; r += run_rows) {
      runs[count++] = {static_cast<std::int32_t>(s), static_cast<std::int32_t>(seq.row_begin + r),
                       static_cast<std::int32_t>(std::min(run_rows, seq.row_count - r))};
    }
  }
  // Few rows: heads are shared out too.
  std::int64_t parts = 1;
  while (count * parts < 2 * threads && op.heads % (2 * parts) == 0 && op.heads / (2 * parts) >= 4)
    parts *= 2;
  const std::int64_t heads = op.heads / parts;
  const auto body = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t h = i % parts * heads;
      HWY_DYNAMIC_DISPATCH(attention_rows)(op, runs[i / parts], h, h + heads);
    }
  };
  // A task too small to be worth a second thread: a few microseconds of products.
  const bool serial = step.rows * op.heads * op.dim * (op.window + op.top_k) < (1 << 17);
  exec.threads->parallel_for(count * parts, serial ? count * parts : 1, body);
}

}  // namespace deepinfer::cpu
#endif  // HWY_ONCE
