// Index scores, candidate blocks and the selection of history entries.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/ref/reductions.h"
#include "kernels/ref/ref.h"

namespace deepinfer::ref {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

// The `count` largest finite scores, ties to the lower index, in ascending order of index.
std::vector<std::int32_t> best(const std::vector<float>& score, std::int64_t count) {
  std::vector<std::int32_t> order(score.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](std::int32_t i) { return score[static_cast<std::size_t>(i)] == kNone; });
  const auto better = [&](std::int32_t a, std::int32_t b) {
    const float sa = score[static_cast<std::size_t>(a)], sb = score[static_cast<std::size_t>(b)];
    return sa != sb ? sa > sb : a < b;
  };
  if (static_cast<std::int64_t>(order.size()) > count) {
    std::nth_element(order.begin(), order.begin() + count, order.end(), better);
    order.resize(static_cast<std::size_t>(count));
  }
  std::sort(order.begin(), order.end());
  return order;
}

void select_row(const IndexSelectOp& op, std::int64_t t) {
  const StepRows& step = *op.step;
  const StepRows::Sequence& seq =
      step.sequences[static_cast<std::size_t>(step.sequence[static_cast<std::size_t>(t)])];
  const std::int64_t visible = (step.position[static_cast<std::size_t>(t)] + 1) / op.keys.ratio;
  std::vector<float> score(static_cast<std::size_t>(visible), kNone);
  std::vector<float> key(static_cast<std::size_t>(op.dim));
  const auto score_entry = [&](std::int64_t j) {
    decode_record(op.keys.format, op.keys.entry(seq.blocks, j), key.data());
    float sum = 0;
    for (std::int64_t h = 0; h < op.heads; ++h) {
      const float d = dot(op.q + (t * op.heads + h) * op.dim, key.data(), op.dim);
      sum = std::fma(op.weight[t * op.heads + h], std::max(d, 0.0f), sum);
    }
    score[static_cast<std::size_t>(j)] = sum;
  };
  const std::int64_t block = op.candidate_block;
  if (op.candidates_in && op.candidates_in_count[t] >= 0) {
    for (std::int32_t c = 0; c < op.candidates_in_count[t]; ++c) {
      const std::int64_t b = op.candidates_in[t * op.candidate_blocks + c];
      for (std::int64_t j = b * block; j < std::min((b + 1) * block, visible); ++j) score_entry(j);
    }
  } else {
    for (std::int64_t j = 0; j < visible; ++j) score_entry(j);
  }
  if (op.candidates_out) {
    const std::int64_t blocks = (visible + block - 1) / block;
    if (blocks <= op.candidate_blocks) {
      op.candidates_out_count[t] = -1;
    } else {
      std::vector<float> top(static_cast<std::size_t>(blocks), kNone);
      for (std::int64_t j = 0; j < visible; ++j) {
        float& b = top[static_cast<std::size_t>(j / block)];
        b = std::max(b, score[static_cast<std::size_t>(j)]);
      }
      top[static_cast<std::size_t>((visible - 1) / block)] = std::numeric_limits<float>::infinity();
      const std::vector<std::int32_t> chosen = best(top, op.candidate_blocks);
      std::copy(chosen.begin(), chosen.end(), op.candidates_out + t * op.candidate_blocks);
      op.candidates_out_count[t] = static_cast<std::int32_t>(chosen.size());
    }
  }
  const std::vector<std::int32_t> chosen = best(score, op.top_k);
  std::copy(chosen.begin(), chosen.end(), op.selected + t * op.top_k);
  op.selected_count[t] = static_cast<std::int32_t>(chosen.size());
}

}  // namespace

void index_select(const Exec& exec, const IndexSelectOp& op) {
  exec.threads->parallel_for(op.step->rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) select_row(op, t);
  });
}

}  // namespace deepinfer::ref
