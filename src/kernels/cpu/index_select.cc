// Index scores and the selection of history entries. Runs of neighbouring rows are taken in groups whose
// score buffer stays small, whatever the length of the prompt (one run at least); within a group, tasks (run,
// stretch of entries) decode keys once for all rows of the run, then every row selects on its own. Rows with
// candidate blocks score just the entries of those blocks.
#include <algorithm>
#include <limits>

#include "base/thread_pool.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/top_k.h"
#include "kernels/cpu/workspace.h"
#include "kernels/ref/ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/index_select.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/dots-inl.h"
#include "kernels/cpu/records-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

constexpr std::int64_t kTile = 64;  // entries decoded at a time

// score[j] of `count` (a multiple of 16 is readable in `dot`) entries from products dot[h][j].
HWY_INLINE void combine(const float* dot, const float* weight, std::int64_t heads, std::int64_t count,
                        float* score) {
  const DF d;
  for (std::int64_t j = 0; j < count; j += 16) {
    V16 sum = zero16();
    for (std::int64_t h = 0; h < heads; ++h) {
      V16 x = load16(dot + h * kTile + j);
      // std::max(x, 0): a NaN stays.
      for (int i = 0; i < kVecs; ++i)
        x.v[i] = hn::IfThenElse(hn::Lt(x.v[i], hn::Zero(d)), hn::Zero(d), x.v[i]);
      sum = fma16(weight[h], x, sum);
    }
    if (j + 16 <= count) {
      store16(sum, score + j);
    } else {
      store16_part(sum, score + j, count - j);
    }
  }
}

// Scores of entries [begin, end) for rows [row, row + rows) of one sequence; score of (row i, entry j) at
// score[i*stride + j - offset]. A row's entries at and after `visible` are not written.
void score_rows(const IndexSelectOp& op, std::int64_t row, std::int64_t rows, std::int64_t begin,
                std::int64_t end, float* score, std::int64_t stride, std::int64_t offset) {
  const StepRows& step = *op.step;
  const StepRows::Sequence& seq =
      step.sequences[static_cast<std::size_t>(step.sequence[static_cast<std::size_t>(row)])];
  auto* keys = scratch<float>(Scratch::kKeys, kTile * op.dim);
  auto* dot = scratch<float>(Scratch::kScores, kTile * op.heads);
  for (std::int64_t j = begin; j < end; j += kTile) {
    const std::int64_t count = std::min(kTile, end - j);
    for (std::int64_t i = 0; i < count; ++i) {
      decode_record_16(op.keys.format, op.keys.entry(seq.blocks, j + i), keys + i * op.dim);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t t = row + r;
      const std::int64_t visible = (step.position[static_cast<std::size_t>(t)] + 1) / op.keys.ratio;
      const std::int64_t wanted = std::min(count, visible - j);
      if (wanted <= 0) continue;
      dots(op.q + t * op.heads * op.dim, op.heads, keys, wanted, op.dim, dot, kTile);
      combine(dot, op.weight + t * op.heads, op.heads, wanted, score + r * stride + j - offset);
    }
  }
}

// Offers score[0..count) with indices from `first` on.
void offer_all(TopK& top, const float* score, std::int64_t count, std::int64_t first) {
  const DF d;
  std::int64_t j = 0;
  for (; j + kVecLanes <= count; j += kVecLanes) {
    if (hn::AllFalse(d, hn::Gt(hn::LoadU(d, score + j), hn::Set(d, top.threshold())))) continue;
    for (std::int64_t i = j; i < j + kVecLanes; ++i) top.offer(score[i], first + i);
  }
  for (; j < count; ++j) top.offer(score[j], first + j);
}

bool index_formats(const IndexSelectOp& op) {
  return op.dim % 16 == 0 && has_vector_decoder(op.keys.format);
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {

HWY_EXPORT(score_rows);
HWY_EXPORT(offer_all);
HWY_EXPORT(index_formats);

namespace {

constexpr std::int64_t kScoreFloats = std::int64_t{1} << 22;  // 16 MiB of scores at a time (at least one row)
constexpr std::int64_t kStretch = 1024;                       // entries of a task
constexpr std::int64_t kRunRows = 16;

std::int64_t up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

std::int64_t visible_entries(const IndexSelectOp& op, std::int64_t t) {
  return (op.step->position[static_cast<std::size_t>(t)] + 1) / op.keys.ratio;
}

bool has_candidates(const IndexSelectOp& op, std::int64_t t) {
  return op.candidates_in != nullptr && op.candidates_in_count[t] >= 0;
}

// Entries [begin, end) of candidate c of row t.
struct Span {
  std::int64_t begin, end;
};
Span candidate(const IndexSelectOp& op, std::int64_t t, std::int64_t c, std::int64_t visible) {
  const std::int64_t b = op.candidates_in[t * op.candidate_blocks + c];
  return {b * op.candidate_block, std::min((b + 1) * op.candidate_block, visible)};
}

// The best candidate blocks of a row from the largest score of each.
void choose_blocks(const IndexSelectOp& op, std::int64_t t, std::int64_t visible, const float* block_top,
                   TopK::Entry* buffer) {
  const std::int64_t blocks = up(visible, op.candidate_block);
  if (blocks <= op.candidate_blocks) {
    op.candidates_out_count[t] = -1;
    return;
  }
  TopK top(buffer, op.candidate_blocks);
  for (std::int64_t b = 0; b < blocks; ++b) {
    top.offer(b == blocks - 1 ? std::numeric_limits<float>::infinity() : block_top[b], b);
  }
  op.candidates_out_count[t] = top.finish(op.candidates_out + t * op.candidate_blocks);
}

// Selection of one row; score holds its entries (all visible ones, or with candidates those of the blocks one
// after the other).
void select_row(const IndexSelectOp& op, std::int64_t t, const float* score) {
  const std::int64_t visible = visible_entries(op, t);
  const std::int64_t k_most = std::max<std::int64_t>(op.top_k, op.candidates_out ? op.candidate_blocks : 0);
  const std::int64_t blocks = op.candidates_out ? up(visible, op.candidate_block) : 0;
  auto* buffer = scratch<TopK::Entry>(Scratch::kKeys, TopK::buffer_size(k_most) + (blocks + 1) / 2);
  auto* block_top = reinterpret_cast<float*>(buffer + TopK::buffer_size(k_most));
  std::fill(block_top, block_top + blocks, -std::numeric_limits<float>::infinity());
  TopK top(buffer, op.top_k);
  const auto offer = [&](const float* s, std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(offer_all)(top, s, end - begin, begin);
    if (blocks == 0) return;
    for (std::int64_t j = begin; j < end; ++j) {
      float& b = block_top[j / op.candidate_block];
      b = std::max(b, s[j - begin]);
    }
  };
  if (has_candidates(op, t)) {
    for (std::int64_t c = 0; c < op.candidates_in_count[t]; ++c) {
      const Span span = candidate(op, t, c, visible);
      if (span.begin >= span.end) continue;
      offer(score, span.begin, span.end);
      score += span.end - span.begin;
    }
  } else {
    offer(score, 0, visible);
  }
  op.selected_count[t] = top.finish(op.selected + t * op.top_k);
  if (op.candidates_out) choose_blocks(op, t, visible, block_top, buffer);
}

// A row with candidates, all by itself.
void candidate_row(const IndexSelectOp& op, std::int64_t t, float* score) {
  const std::int64_t visible = visible_entries(op, t);
  std::int64_t used = 0;
  for (std::int64_t c = 0; c < op.candidates_in_count[t]; ++c) {
    const Span span = candidate(op, t, c, visible);
    if (span.begin >= span.end) continue;
    HWY_DYNAMIC_DISPATCH(score_rows)(op, t, 1, span.begin, span.end, score + used, 0, span.begin);
    used += span.end - span.begin;
  }
  select_row(op, t, score);
}

// Rows [row, row + rows) of one sequence, their scores `stride` apart from `offset` on, and the index of
// their first task.
struct RowRun {
  std::int64_t row, rows, stride, offset, first_task;
};

// Scores and selection of several runs whose scores fit the buffer together.
void score_group(const Exec& exec, const IndexSelectOp& op, const RowRun* runs, std::int64_t count) {
  const RowRun& last = runs[count - 1];
  auto* score = scratch<float>(Scratch::kGather, last.offset + last.rows * last.stride);
  const std::int64_t tasks = last.first_task + up(last.stride, kStretch);
  const auto body = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const RowRun& run = std::upper_bound(
          runs, runs + count, i, [](std::int64_t task, const RowRun& r) { return task < r.first_task; })[-1];
      const std::int64_t first = (i - run.first_task) * kStretch;
      HWY_DYNAMIC_DISPATCH(score_rows)
      (op, run.row, run.rows, first, std::min(first + kStretch, run.stride), score + run.offset, run.stride,
       0);
    }
  };
  const std::int64_t products = (last.offset + last.rows * last.stride) * op.heads * op.dim;
  const bool serial = products < (1 << 17);
  exec.threads->parallel_for(tasks, serial ? tasks : 1, body);
  const auto choose = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::int64_t r = 0; r < runs[i].rows; ++r) {
        select_row(op, runs[i].row + r, score + runs[i].offset + r * runs[i].stride);
      }
    }
  };
  exec.threads->parallel_for(count, serial ? count : 1, choose);
}

}  // namespace

void index_select(const Exec& exec, const IndexSelectOp& op) {
  if (!HWY_DYNAMIC_DISPATCH(index_formats)(op)) return ref::index_select(exec, op);
  const StepRows& step = *op.step;
  const std::int64_t run_rows =
      std::clamp<std::int64_t>(step.rows / (4 * exec.threads->thread_count()), 1, kRunRows);
  auto* runs = scratch<RowRun>(Scratch::kPlan, step.rows + 1);
  std::int64_t count = 0, candidate_rows = 0;
  for (const StepRows::Sequence& seq : step.sequences) {
    const std::int64_t end = seq.row_begin + seq.row_count;
    for (std::int64_t row = seq.row_begin; row < end;) {
      if (has_candidates(op, row)) {
        ++candidate_rows;
        ++row;
        continue;
      }
      // Neighbouring rows without candidates; the last one sees the most entries.
      std::int64_t rows = 1;
      while (rows < run_rows && row + rows < end && !has_candidates(op, row + rows)) ++rows;
      RowRun run{row, rows, visible_entries(op, row + rows - 1), 0, 0};
      row += rows;
      if (count > 0) {
        const RowRun& before = runs[count - 1];
        run.offset = before.offset + before.rows * before.stride;
        run.first_task = before.first_task + up(before.stride, kStretch);
        if (run.offset + run.rows * run.stride > kScoreFloats) {
          score_group(exec, op, runs, count);
          count = 0;
          run.offset = run.first_task = 0;
        }
      }
      runs[count++] = run;
    }
  }
  if (count > 0) score_group(exec, op, runs, count);
  if (candidate_rows == 0) return;
  const auto body = [&](std::int64_t begin, std::int64_t end, int) {
    auto* score = scratch<float>(Scratch::kPacked, op.candidate_blocks * op.candidate_block);
    for (std::int64_t t = begin; t < end; ++t) {
      if (has_candidates(op, t)) candidate_row(op, t, score);
    }
  };
  exec.threads->parallel_for(step.rows, 1, body);
}

}  // namespace deepinfer::cpu
#endif  // HWY_ONCE
