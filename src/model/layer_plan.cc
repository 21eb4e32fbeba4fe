#include "model/layer_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer {
namespace {

bool contains(const std::vector<std::int64_t>& list, std::int64_t x) {
  return std::find(list.begin(), list.end(), x) != list.end();
}

/// The largest entry <= x, or -1.
std::int64_t nearest_before(const std::vector<std::int64_t>& list, std::int64_t x) {
  std::int64_t best = -1;
  for (const std::int64_t entry : list) {
    if (entry <= x) best = std::max(best, entry);
  }
  return best;
}

void plan_v4(LayerPlan& plan, std::int64_t layer) {
  plan.owns_pool = plan.ratio > 0;
  plan.overlap = plan.ratio == 4;
  plan.runs_index = plan.ratio == 4;
  plan.pool_layer = plan.owns_pool ? layer : -1;
  plan.index_layer = plan.runs_index ? layer : -1;
}

void plan_v41(LayerPlan& plan, std::int64_t layer, const LayerLists& lists,
              std::vector<std::string>& problems) {
  const bool kv = contains(lists.kv_sources, layer);
  const bool index = contains(lists.index_sources, layer);
  if (plan.ratio == 0) {
    if (kv)
      problems.push_back(fmt::format("kv_source_layer_ids names layer {}, whose compress_ratio is 0", layer));
    if (index)
      problems.push_back(
          fmt::format("index_source_layer_ids names layer {}, whose compress_ratio is 0", layer));
    return;
  }
  plan.owns_pool = kv;
  plan.runs_index = index;
  plan.pool_layer = nearest_before(lists.kv_sources, layer);
  plan.index_layer = nearest_before(lists.index_sources, layer);
  if (plan.pool_layer < 0) {
    problems.push_back(fmt::format(
        "layer {} reads a compressed cache, but no layer of kv_source_layer_ids lies before it", layer));
    return;
  }
  const std::int64_t pool_ratio = lists.ratios[static_cast<std::size_t>(plan.pool_layer)];
  if (pool_ratio != plan.ratio && pool_ratio != 0)
    problems.push_back(
        fmt::format("layer {} has compress_ratio {}, but the cache it reads, of layer {}, has {}", layer,
                    plan.ratio, plan.pool_layer, pool_ratio));
  if (plan.index_layer < plan.pool_layer)
    problems.push_back(fmt::format(
        "layer {} has no selection for the cache of layer {}: index_source_layer_ids names no layer from "
        "{} to {}",
        layer, plan.pool_layer, plan.pool_layer, layer));
  plan.builds_candidates = layer == lists.candidate_source;
  plan.uses_candidates = index && lists.candidate_source >= 0 && layer > lists.candidate_source;
  if (plan.uses_candidates && plan.pool_layer != nearest_before(lists.kv_sources, lists.candidate_source))
    problems.push_back(fmt::format(
        "layer {} would score candidates of another cache than its own (candidate_source_layer_id {})", layer,
        lists.candidate_source));
}

/// Ascending, without repetition, within [0, layers).
void check_layer_list(const std::vector<std::int64_t>& list, const char* name, std::int64_t layers,
                      std::vector<std::string>& problems) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] < 0 || list[i] >= layers) {
      problems.push_back(
          fmt::format("{} names layer {}, but the layers are 0..{}", name, list[i], layers - 1));
    } else if (i > 0 && list[i] <= list[i - 1]) {
      problems.push_back(fmt::format("{} is not ascending at {}", name, list[i]));
    }
  }
}

}  // namespace

void derive_layer_plan(const LayerLists& lists, ModelConfig& config, std::vector<std::string>& problems) {
  const std::size_t before = problems.size();
  check_layer_list(lists.kv_sources, "kv_source_layer_ids", config.layers, problems);
  check_layer_list(lists.index_sources, "index_source_layer_ids", config.layers, problems);
  if (config.engram) check_layer_list(config.engram->layers, "engram_layer_ids", config.layers, problems);
  check_layer_list(config.draft.target_layers, "dspark_target_layer_ids", config.layers, problems);
  if (lists.candidate_source >= 0 && !contains(lists.index_sources, lists.candidate_source))
    problems.push_back(fmt::format("candidate_source_layer_id {} is not one of index_source_layer_ids",
                                   lists.candidate_source));
  if (problems.size() != before || static_cast<std::int64_t>(lists.ratios.size()) != config.layers) return;

  config.plan.assign(static_cast<std::size_t>(config.layers), LayerPlan{});
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    LayerPlan& plan = config.plan[static_cast<std::size_t>(layer)];
    plan.ratio = lists.ratios[static_cast<std::size_t>(layer)];
    plan.hash_routed = layer < config.hash_layers;
    plan.draft_tap = contains(config.draft.target_layers, layer);
    if (config.engram) {
      const auto& tables = config.engram->layers;
      const auto found = std::find(tables.begin(), tables.end(), layer);
      if (found != tables.end()) plan.engram = found - tables.begin();
    }
    if (config.family == Family::kDeepseekV4)
      plan_v4(plan, layer);
    else
      plan_v41(plan, layer, lists, problems);
  }
}

}  // namespace deepinfer
