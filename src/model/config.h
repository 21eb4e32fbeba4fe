// The shape of a network, read from config.json and checked: everything the loader, the planner and the
// forward passes need to know before a weight is touched. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "deepinfer/types.h"

namespace deepinfer {

enum class Family { kDeepseekV4, kDeepseekV41 };

/// What the weights are stored in.
struct WeightQuantization {
  std::int64_t block = 0;  ///< edge of the square FP8 tiles (32 or 128); 0 = unquantised (BF16/F32 weights)
  bool fp4_experts =
      false;  ///< routed experts in FP4 with a scale per 32; else they are FP8 (or unquantised)
};

struct YarnScaling {
  double factor = 16, beta_fast = 32, beta_slow = 1;
  std::int64_t original_max_positions = 65536;
};

/// V4.1: hashed n-gram tables in front of some layers (spec of the family: docs/design/deepseek_v41.md).
struct EngramConfig {
  std::vector<std::int64_t> layers;      ///< ascending
  std::vector<std::int64_t> table_rows;  ///< rows of each layer's table
  std::int64_t max_ngram = 4, heads = 8, head_dim = 256;
  std::int64_t vocab_start = 16000000;  ///< where the search for the hash primes starts
  std::int64_t pad_token = 2;
  std::int64_t compressed_vocab = 0;  ///< distinct values of the token map
};

/// DSpark draft stages (`mtp.*`).
struct DraftConfig {
  std::int64_t stages = 0;  ///< 0 = none
  bool dspark = false;      ///< false with stages > 0: the April MTP layer
  std::int64_t block_size = 5;
  std::int64_t noise_token = 0;
  std::vector<std::int64_t> target_layers;
  std::int64_t markov_rank = 256;
  std::int64_t experts = 0, experts_per_token = 0;
};

struct VisionConfig {
  std::int64_t layers = 0, hidden = 0, heads = 0, inner = 0, patch = 14, downsample = 3;
  double rope_theta = 10000;
  std::int64_t max_image_tokens = 1024, min_pixels = 0;
  std::optional<double> max_wh_ratio;
};

/// One backbone layer's role in the attention plan.
struct LayerPlan {
  std::int64_t ratio = 0;        ///< compression ratio it reads; 0 = window only
  std::int64_t pool_layer = -1;  ///< layer that owns the pool it reads (itself for owners), -1 without
  std::int64_t index_layer =
      -1;                   ///< layer whose selection it uses, -1: none (window only, or every visible entry)
  bool owns_pool = false;   ///< runs a compressor
  bool runs_index = false;  ///< runs an indexer
  bool overlap = false;     ///< V4 ratio 4: overlapping compressor
  bool builds_candidates = false, uses_candidates = false;
  std::int64_t engram = -1;  ///< index into EngramConfig::layers, -1 without
  bool draft_tap = false;    ///< its input streams feed the draft module
  bool hash_routed = false;  ///< V4: experts by token id
};

struct ModelConfig {
  Family family = Family::kDeepseekV41;
  std::string model_type;
  std::int64_t vocab_size = 0, hidden = 0, layers = 0, heads = 0, head_dim = 0, rope_dim = 0, q_rank = 0;
  std::int64_t o_groups = 0, o_rank = 0;
  std::int64_t experts = 0, shared_experts = 0, experts_per_token = 0, expert_inner = 0, hash_layers = 0;
  double routed_scale = 1.5, gate_temperature = 1.0, swiglu_limit = 10.0, norm_eps = 1e-6;
  double rope_theta = 10000, compress_rope_theta = 160000;
  std::optional<YarnScaling> yarn;
  std::int64_t max_positions = 0, window = 128;
  std::int64_t index_heads = 0, index_head_dim = 0, index_top_k = 0;
  std::int64_t candidate_blocks = 0, candidate_block = 8;  ///< 0 blocks = no candidate stage
  std::int64_t streams = 4, sinkhorn_iterations = 20;
  double hyper_eps = 1e-6;
  WeightQuantization quantization;
  std::vector<LayerPlan> plan;  ///< one per backbone layer
  std::optional<EngramConfig> engram;
  DraftConfig draft;
  std::optional<VisionConfig> vision;
  TokenId bos = 0, eos = 1, pad = 2, image_token = -1;
};

/// Reads and checks config.json (Hugging Face names) or inference/config.json (the reference's names). Every
/// problem of the file is listed in one Error, each with its JSON pointer.
Result<ModelConfig> parse_config(std::string_view json_text);

}  // namespace deepinfer
