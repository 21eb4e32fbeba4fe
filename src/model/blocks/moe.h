// Router, routed experts and the shared expert of one layer.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/blocks/step.h"
#include "model/weight_loader.h"

namespace deepinfer {

struct MoeWeights {
  Weight gate;
  std::span<const float> bias, bias_image;  ///< empty where the family has none
  std::span<const std::int64_t> fixed;      ///< hash-routed layers: [vocab, top_k]
  std::vector<ExpertWeights> experts;
  ExpertWeights shared;
  std::int64_t top_k = 0;
  float epsilon = 1e-20f;

  /// prefix such as "layers.3.ffn".
  static MoeWeights load(WeightLoader& loader, const std::string& prefix, std::int64_t experts,
                         std::int64_t top_k);
};

/// Buffers for up to `rows` rows.
struct MoeScratch {
  std::vector<float> logits, weight, quantized;
  std::vector<std::int32_t> chosen;
  MoeScratch(const ModelConfig& config, std::int64_t rows);
};

/// out = moe(u). image [T] or null.
void run_moe(const BlockContext& c, std::int64_t layer, const MoeWeights& w, const float* u,
             const std::uint8_t* image, MoeScratch& s, float* out);

}  // namespace deepinfer
