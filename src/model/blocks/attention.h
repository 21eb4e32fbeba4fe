// Attention over a sliding window and selected compressed history: the projections, the cache writes, the
// index and the output, with the differences between the families as data (AttentionTraits) rather than as
// copies.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/blocks/step.h"
#include "model/cache.h"
#include "model/weight_loader.h"

namespace deepinfer {

/// A compressor: c = wkv·u, g = wgate·u (+ ape), pooled per group, normed.
struct CompressorWeights {
  Weight wkv, wgate;           ///< wgate.n == 0: no gate (ratio 1)
  std::span<const float> ape;  ///< [ratio, width]; empty in V4.1
  std::span<const float> norm;
  static CompressorWeights load(WeightLoader& loader, const std::string& prefix);
};

struct IndexerWeights {
  Weight wq_b, weights_proj;
  Weight wk;                      ///< V4.1: key from the latent
  std::span<const float> k_norm;  ///< V4.1
  CompressorWeights compressor;   ///< V4: an own compressor of index_head_dim
};

struct AttentionWeights {
  Weight wq_a, wq_b, wkv, wo_a, wo_b;
  std::span<const float> q_norm, kv_norm, sink;
  CompressorWeights compressor;  ///< pool owners only
  IndexerWeights indexer;        ///< index sources only

  /// prefix such as "layers.3.attn".
  static AttentionWeights load(WeightLoader& loader, const std::string& prefix);
};

/// Angles of one step for the two RoPE bases; [rows, rope_dim/2, 2] each.
struct StepRotations {
  std::vector<float> plain, compressed;
};

/// Buffers of one attention call for up to `rows` rows, and the selection handed from index sources to the
/// layers that reuse it.
struct AttentionScratch {
  std::vector<float> quantized, latent_q, quantized_latent, q, kv, o, grouped, quantized_grouped;
  std::vector<float> index_q, index_weight;
  std::vector<float> c, g, entry, index_entry, entry_rotation;
  std::vector<std::int64_t> entry_position;
  std::vector<std::int32_t> entry_sequence;
  std::vector<std::int32_t> selected, selected_count, candidates, candidates_count;
  AttentionScratch(const ModelConfig& config, std::int64_t rows);
};

/// o_out [T, hidden] = attention of backbone layer `layer` for its normed input u [T, hidden].
/// entry_frequencies: those of compressed layers.
void run_attention(const BlockContext& c, std::int64_t layer, const AttentionWeights& w,
                   const CacheStorage& cache, const StepRotations& rotations,
                   std::span<const float> entry_frequencies, const float* u, AttentionScratch& s,
                   float* o_out);

}  // namespace deepinfer
