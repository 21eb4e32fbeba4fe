#include "kernels/cost.h"

#include <algorithm>
#include <vector>

namespace deepinfer {
namespace {

double d(std::int64_t v) {
  return static_cast<double>(v);
}

std::int64_t position_of(const StepRows& step, std::int64_t t) {
  return step.position[static_cast<std::size_t>(t)];
}

}  // namespace

double weight_bytes(const Weight& w) {
  const double values = d(w.n) * d(w.k);
  switch (w.format) {
    case WeightFormat::kF32:
      return 4 * values;
    case WeightFormat::kBf16:
      return 2 * values;
    case WeightFormat::kFp8:
      return values + values / (d(w.scale_block) * d(w.scale_block));
    case WeightFormat::kFp4:
      return values / 2 + values / 32;
  }
  return 0;
}

OpCost cost(const LinearOp& op) {
  return {weight_bytes(op.w), 2 * d(op.rows) * d(op.w.n) * d(op.w.k)};
}

OpCost cost(const GroupedLinearOp& op) {
  return {weight_bytes(op.w), 2 * d(op.rows) * d(op.w.n) * d(op.w.k)};
}

OpCost cost(const ExpertsOp& op) {
  std::vector<bool> hit(op.experts.size());
  for (std::int64_t s = 0; s < op.rows * op.top_k; ++s) hit[static_cast<std::size_t>(op.chosen[s])] = true;
  const auto unit = [](const ExpertWeights& e) {
    return weight_bytes(e.w1) + weight_bytes(e.w3) + weight_bytes(e.w2);
  };
  OpCost c;
  for (std::size_t e = 0; e < hit.size(); ++e) {
    if (hit[e]) c.bytes += unit(op.experts[e]);
  }
  if (op.shared) c.bytes += unit(*op.shared);
  c.flops = 6 * d(op.rows) * d(op.top_k + (op.shared ? 1 : 0)) * d(op.dim) * d(op.inner);
  return c;
}

OpCost cost(const AttentionOp& op) {
  OpCost c;
  for (std::int64_t t = 0; t < op.step->rows; ++t) {
    const std::int64_t position = position_of(*op.step, t);
    const std::int64_t window = std::min(op.window, position + 1);
    std::int64_t pool = 0;
    if (op.pool.data) pool = op.selected ? op.selected_count[t] : (position + 1) / op.pool.ratio;
    c.bytes += d(window) * d(op.ring.format.bytes) + d(pool) * d(op.pool.format.bytes);
    c.flops += 4 * d(window + pool) * d(op.heads) * d(op.dim);
  }
  return c;
}

OpCost cost(const IndexSelectOp& op) {
  OpCost c;
  for (std::int64_t t = 0; t < op.step->rows; ++t) {
    std::int64_t entries = (position_of(*op.step, t) + 1) / op.keys.ratio;
    if (op.candidates_in && op.candidates_in_count[t] >= 0) {
      entries = std::min(entries, op.candidates_in_count[t] * op.candidate_block);
    }
    c.bytes += d(entries) * d(op.keys.format.bytes);
    c.flops += 2 * d(entries) * d(op.heads) * d(op.dim + 1);
  }
  return c;
}

OpCost cost(const HyperMixOp& op) {
  return {4 * (24 * 4 * d(op.dim) + 4 * d(op.rows) * d(op.dim)), 2 * 25 * 4 * d(op.rows) * d(op.dim)};
}
OpCost cost(const HyperCollapseOp& op) {
  return {4 * 5 * d(op.rows) * d(op.dim), 7 * d(op.rows) * d(op.dim)};
}
OpCost cost(const HyperExpandOp& op) {
  return {4 * 9 * d(op.rows) * d(op.dim), 36 * d(op.rows) * d(op.dim)};
}
OpCost cost(const RmsNormOp& op) {
  const double values = d(op.rows) * d(op.groups) * d(op.width);
  return {8 * values, 4 * values};
}
OpCost cost(const RopeOp& op) {
  const double values = 2 * d(op.rows) * d(op.heads) * d(op.half_dim);
  return {8 * values, 3 * values};
}
OpCost cost(const QuantizeOp& op) {
  return {8 * d(op.rows) * d(op.width), 3 * d(op.rows) * d(op.width)};
}
OpCost cost(const CacheRoundOp& op) {
  return {8 * d(op.rows) * d(op.format.dim), 3 * d(op.rows) * d(op.format.dim)};
}
OpCost cost(const EngramGatherOp& op) {
  const double values = d(op.rows) * d(op.count) * d(op.width);
  return {values * (1 + 1.0 / 32 + 4), values};
}
OpCost cost(const EngramGateOp& op) {
  const double values = d(op.rows) * d(op.dim);
  return {4 * 13 * values, 4 * 9 * values};
}

}  // namespace deepinfer
