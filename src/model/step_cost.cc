#include "model/step_cost.h"

#include <algorithm>
#include <cmath>

#include "model/cache.h"
#include "model/tensor_list.h"

namespace deepinfer {
namespace {

bool is_matrix(const ExpectedTensor& t) {
  return !t.is_scale && t.shape.size() == 2;
}

}  // namespace

StepCost step_cost(const ModelConfig& config, const Numerics& numerics, std::int64_t rows,
                   std::int64_t logits_rows, std::int64_t context) {
  StepCost cost;
  const auto r = static_cast<double>(rows);
  const double experts = static_cast<double>(config.experts),
               chosen = static_cast<double>(config.experts_per_token);
  const double met = experts > 0 ? 1.0 - std::pow(1.0 - chosen / experts, r) : 0.0;
  for (const ExpectedTensor& t : expected_tensors(config)) {
    const auto bytes = static_cast<double>(t.bytes());
    const double products = is_matrix(t) ? static_cast<double>(t.parameters()) : 0.0;
    switch (t.kind) {
      case TensorKind::kEmbedding:
      case TensorKind::kEngramTable:
        break;  // single rows
      case TensorKind::kDraft:
      case TensorKind::kVision:
        break;
      case TensorKind::kRoutedExpert:
        cost.weight_bytes += bytes * met;
        cost.flops += 2 * products * r * chosen / experts;
        break;
      case TensorKind::kHead:
        if (logits_rows > 0) cost.weight_bytes += bytes;
        cost.flops += 2 * products * static_cast<double>(logits_rows);
        break;
      default:
        cost.weight_bytes += bytes;
        cost.flops += 2 * products * r;
    }
  }
  const CacheLayout layout = CacheLayout::of(config, numerics);
  const auto past = static_cast<double>(context);
  for (const LayerPlan& plan : config.plan) {
    const double window = std::min(past, static_cast<double>(config.window));
    double history = 0;
    for (const PoolLayout& pool : layout.pools) {
      if (plan.ratio == 0 || pool.layer != plan.pool_layer) continue;
      const double visible = past / static_cast<double>(pool.ratio);
      history = plan.index_layer >= 0 ? std::min(visible, static_cast<double>(config.index_top_k)) : visible;
      cost.cache_bytes += r * history * static_cast<double>(pool.entry.bytes);
      if (!plan.runs_index) continue;
      cost.cache_bytes += r * visible * static_cast<double>(pool.index_key.bytes);
      cost.flops += 2 * r * visible * static_cast<double>(config.index_heads * config.index_head_dim);
    }
    cost.cache_bytes += r * window * static_cast<double>(layout.window.bytes);
    // Scores and weighted sum.
    cost.flops += 4 * r * (window + history) * static_cast<double>(config.heads * config.head_dim);
  }
  return cost;
}

}  // namespace deepinfer
