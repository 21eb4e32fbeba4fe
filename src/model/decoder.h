// What the forward passes of both families have in common: checking a step, its rotations, the token
// embedding, the final hidden rows and the head. A family derives from it and runs its layers (deepseek_v41/,
// deepseek_v4/).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "io/checkpoint.h"
#include "kernels/registry.h"
#include "model/blocks/attention.h"
#include "model/blocks/hyper.h"
#include "model/blocks/moe.h"
#include "model/blocks/step.h"
#include "model/cache.h"
#include "model/model.h"
#include "model/weight_loader.h"

namespace deepinfer {

/// How a network is opened. Zero sizes choose defaults.
struct ModelOptions {
  Numerics numerics = Numerics::official();
  KernelChoice kernels = KernelChoice::kFast;
  std::int64_t max_rows = 0;     ///< rows of one step; default 512
  std::int64_t block_count = 0;  ///< cache blocks; default: one context of 32,768 positions
  std::int64_t slot_count = 0;   ///< sequences at once; default 32
  int threads = 0;               ///< default: physical cores
  bool engram_in_memory =
      false;  ///< copy Engram tables at load; else rows are read from the file mapping when needed
};

/// One backbone layer.
struct LayerWeights {
  HyperWeights attn_hyper, ffn_hyper;
  std::span<const float> attn_norm, ffn_norm;
  AttentionWeights attention;
  MoeWeights moe;
  /// prefix such as "layers.3".
  static LayerWeights load(WeightLoader& loader, const std::string& prefix, std::int64_t experts,
                           std::int64_t top_k);
};

class Decoder : public Model {
 public:
  const ModelConfig& config() const override { return config_; }
  std::int64_t vocab_size() const override { return config_.vocab_size; }
  CacheSize cache_size() const override { return cache_.size(); }
  std::int64_t max_rows() const override { return max_rows_; }
  Status forward(std::span<const Chunk> chunks) override;
  std::int64_t output_rows() const override { return output_rows_; }
  Status logits(std::int64_t first, std::int64_t count, std::span<float> out) override;

  /// Shown intermediate values from now on; null = nobody.
  void set_observer(Observer* observer) { observer_ = observer; }
  const CacheStorage& cache() const { return cache_; }
  const Numerics& numerics() const { return numerics_; }

 protected:
  /// Takes what every family needs; `config` and the tensor list were checked.
  Decoder(Checkpoint checkpoint, ModelConfig config, const ModelOptions& options, CacheStorage cache);

  /// Runs the layers on streams_ [rows, 4, hidden] and leaves the final collapse weights in final_pre_ [rows,
  /// 4]. `chunks` are the step's, for what depends on token history.
  virtual Status run_layers(const BlockContext& c, std::span<const Chunk> chunks) = 0;

  /// An error naming the layer when the mixing weights (which every value of the streams enters) are not
  /// finite.
  Status check_finite(const std::vector<float>& pre, std::int64_t rows, std::int64_t layer) const;

  Checkpoint checkpoint_;
  ModelConfig config_;
  Numerics numerics_;
  OpTable ops_;
  ThreadPool threads_;
  Exec exec_;
  std::int64_t max_rows_;
  CacheStorage cache_;
  WeightLoader loader_;
  std::vector<LayerWeights> layers_;
  std::vector<float> plain_frequencies_, compressed_frequencies_;
  StepRotations rotations_;
  std::vector<float> streams_, input_, output_;  // [rows, 4, hidden], [rows, hidden], [rows, hidden]
  std::vector<float> final_pre_;
  AttentionScratch attention_scratch_;
  MoeScratch moe_scratch_;

 private:
  Status check_chunks(std::span<const Chunk> chunks) const;
  void collect_outputs(const BlockContext& c, std::span<const Chunk> chunks);

  StepBuilder builder_;
  std::span<const std::uint16_t> embedding_;
  Weight head_;
  std::span<const float> final_norm_;
  std::vector<float> hidden_rows_;  // [output_rows, hidden], normed
  std::int64_t output_rows_ = 0;
  Observer* observer_ = nullptr;
};

}  // namespace deepinfer
