// Which cache each layer owns and reads, derived from the lists in config.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"

namespace deepinfer {

/// The lists as config.json states them.
struct LayerLists {
  std::vector<std::int64_t> ratios;         ///< one per backbone layer
  std::vector<std::int64_t> kv_sources;     ///< V4.1: layers that own a pool
  std::vector<std::int64_t> index_sources;  ///< V4.1: layers that run an indexer
  std::int64_t candidate_source = -1;       ///< V4.1: the layer that chooses candidate blocks, -1 without
};

/// Fills config.plan from the lists and from config.{family, layers, hash_layers, engram, draft}. V4: every
/// layer with ratio > 0 owns a pool, those with ratio 4 also an indexer. V4.1: the pool of a layer is the
/// nearest kv source at or before it, its selection the nearest index source at or before it. Contradictions
/// are appended to `problems`.
void derive_layer_plan(const LayerLists& lists, ModelConfig& config, std::vector<std::string>& problems);

}  // namespace deepinfer
