#include "model/deepseek_v4/deepseek_v4.h"

#include <fmt/format.h>

namespace deepinfer {
namespace {

std::size_t zu(std::int64_t v) {
  return static_cast<std::size_t>(v);
}

class DeepseekV4 final : public Decoder {
 public:
  DeepseekV4(Checkpoint checkpoint, ModelConfig config, const ModelOptions& options, CacheStorage cache)
      : Decoder(std::move(checkpoint), std::move(config), options, std::move(cache)),
        mix_(max_rows_),
        head_fn_(loader_.vector("hc_head_fn")),
        head_scale_(loader_.vector("hc_head_scale")),
        head_base_(loader_.vector("hc_head_base")) {
    // A table's experts are normalised among themselves, without the guard that a selection carries.
    for (std::int64_t layer = 0; layer < config_.hash_layers; ++layer) layers_[zu(layer)].moe.epsilon = 0.0f;
  }

  /// The routing tables come from the file and index the experts.
  Status check_routing_tables() const {
    for (std::int64_t layer = 0; layer < config_.hash_layers; ++layer) {
      const std::span<const std::int64_t> table = layers_[zu(layer)].moe.fixed;
      for (std::size_t i = 0; i < table.size(); ++i) {
        if (table[i] >= 0 && table[i] < config_.experts) continue;
        return corrupt(
            fmt::format("token {} is routed to expert {}, the layer has {}",
                        static_cast<std::int64_t>(i) / config_.experts_per_token, table[i], config_.experts),
            fmt::format("layers.{}.ffn.gate.tid2eid", layer));
      }
    }
    return {};
  }

 protected:
  Status run_layers(const BlockContext& c, std::span<const Chunk>) override {
    for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
      run_layer(c, layer);
      DI_TRY(check_finite(mix_.pre, c.rows(), layer));
      c.observe("X", layer, streams_.data(), config_.streams * config_.hidden);
    }
    ops_.hyper_head(exec_, {.x = streams_.data(),
                            .fn = head_fn_.data(),
                            .scale = head_scale_.data(),
                            .base = head_base_.data(),
                            .pre = final_pre_.data(),
                            .rows = c.rows(),
                            .dim = config_.hidden,
                            .norm_eps = static_cast<float>(config_.norm_eps),
                            .eps = static_cast<float>(config_.hyper_eps)});
    return check_finite(final_pre_, c.rows(), config_.layers - 1);
  }

 private:
  void run_layer(const BlockContext& c, std::int64_t layer) {
    const LayerWeights& w = layers_[zu(layer)];
    compute_mix(c, w.attn_hyper, streams_.data(), mix_);
    collapse_and_norm(c, streams_.data(), mix_.pre.data(), w.attn_norm, input_.data());
    run_attention(c, layer, w.attention, cache_, rotations_, compressed_frequencies_, input_.data(),
                  attention_scratch_, output_.data());
    c.observe("attn_out", layer, output_.data(), config_.hidden);
    expand(c, output_.data(), mix_, streams_.data());
    compute_mix(c, w.ffn_hyper, streams_.data(), mix_);
    collapse_and_norm(c, streams_.data(), mix_.pre.data(), w.ffn_norm, input_.data());
    run_moe(c, layer, w.moe, input_.data(), nullptr, moe_scratch_, output_.data());
    c.observe("ffn_out", layer, output_.data(), config_.hidden);
    expand(c, output_.data(), mix_, streams_.data());
  }

  HyperMix mix_;
  std::span<const float> head_fn_, head_scale_, head_base_;
};

}  // namespace

Result<std::unique_ptr<Decoder>> open_deepseek_v4(Checkpoint checkpoint, const ModelConfig& config,
                                                  const ModelOptions& options, CacheStorage cache) {
  auto model = std::make_unique<DeepseekV4>(std::move(checkpoint), config, options, std::move(cache));
  DI_TRY(model->check_routing_tables());
  return std::unique_ptr<Decoder>(std::move(model));
}

}  // namespace deepinfer
