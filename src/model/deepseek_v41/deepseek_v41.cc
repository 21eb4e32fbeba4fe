#include "model/deepseek_v41/deepseek_v41.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer {
namespace {

std::size_t zu(std::int64_t v) {
  return static_cast<std::size_t>(v);
}

struct EngramWeights {
  std::span<const std::uint8_t> table, scale;  // usually in the mapping: only the rows in use are ever read
  Weight wkv;
  std::vector<float> qk_weight;
};

class DeepseekV41 final : public Decoder {
 public:
  DeepseekV41(Checkpoint checkpoint, ModelConfig config, const ModelOptions& options, EngramHash hash,
              CacheStorage cache)
      : Decoder(std::move(checkpoint), std::move(config), options, std::move(cache)),
        hash_(std::move(hash)),
        attn_mix_(max_rows_),
        ffn_mix_(max_rows_) {
    if (!config_.engram) return;
    for (const std::int64_t layer : config_.engram->layers) {
      const std::string prefix = fmt::format("layers.{}.engram", layer);
      EngramWeights w;
      w.table = loader_.bytes(prefix + ".embed.weight", options.engram_in_memory);
      w.scale = loader_.bytes(prefix + ".embed.scale", options.engram_in_memory);
      w.wkv = loader_.matrix(prefix + ".wkv");
      const std::span<const float> q = loader_.vector(prefix + ".q_weight"),
                                   k = loader_.vector(prefix + ".k_weight");
      w.qk_weight.resize(q.size());
      for (std::size_t i = 0; i < q.size(); ++i) w.qk_weight[i] = q[i] * k[i];
      engram_.push_back(std::move(w));
    }
    const std::int64_t row_width = hash_.rows_per_token() * config_.engram->head_dim;
    row_ids_.resize(zu(max_rows_ * hash_.rows_per_token()));
    rows_.resize(zu(max_rows_ * row_width));
    quantized_rows_.resize(rows_.size());
    engram_kv_.resize(zu(max_rows_ * (config_.streams + 1) * config_.hidden));
  }

 protected:
  Status run_layers(const BlockContext& c, std::span<const Chunk> chunks) override {
    // The first sub-layer reads stream 0, which equals the others.
    for (std::int64_t t = 0; t < c.rows(); ++t) {
      for (std::int64_t j = 0; j < config_.streams; ++j)
        final_pre_[zu(t * config_.streams + j)] = j == 0 ? 1.0f : 0.0f;
    }
    for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
      const LayerPlan& plan = config_.plan[zu(layer)];
      if (plan.engram >= 0) run_engram(c, layer, plan.engram, chunks);
      run_layer(c, layer);
      DI_TRY(check_finite(final_pre_, c.rows(), layer));
      c.observe("X", layer, streams_.data(), config_.streams * config_.hidden);
    }
    return {};
  }

 private:
  // One block. final_pre_ carries the collapse weights from sub-layer to sub-layer.
  void run_layer(const BlockContext& c, std::int64_t layer) {
    const LayerWeights& w = layers_[zu(layer)];
    compute_mix(c, w.attn_hyper, streams_.data(), attn_mix_);
    collapse_and_norm(c, streams_.data(), final_pre_.data(), w.attn_norm, input_.data());
    run_attention(c, layer, w.attention, cache_, rotations_, compressed_frequencies_, input_.data(),
                  attention_scratch_, output_.data());
    c.observe("attn_out", layer, output_.data(), config_.hidden);
    expand(c, output_.data(), attn_mix_, streams_.data());
    compute_mix(c, w.ffn_hyper, streams_.data(), ffn_mix_);
    collapse_and_norm(c, streams_.data(), attn_mix_.pre.data(), w.ffn_norm, input_.data());
    run_moe(c, layer, w.moe, input_.data(), nullptr, moe_scratch_, output_.data());
    c.observe("ffn_out", layer, output_.data(), config_.hidden);
    expand(c, output_.data(), ffn_mix_, streams_.data());
    std::copy_n(ffn_mix_.pre.begin(), c.rows() * config_.streams, final_pre_.begin());
  }

  void run_engram(const BlockContext& c, std::int64_t layer, std::int64_t table,
                  std::span<const Chunk> chunks) {
    const EngramWeights& w = engram_[zu(table)];
    const std::int64_t per_token = hash_.rows_per_token();
    std::int64_t row = 0;
    for (const Chunk& chunk : chunks) {
      // The n-grams of the first rows reach back into the history.
      const std::int64_t behind = std::min<std::int64_t>(static_cast<std::int64_t>(chunk.history.size()),
                                                         config_.engram->max_ngram - 1);
      tokens_.assign(chunk.history.end() - behind, chunk.history.end());
      tokens_.insert(tokens_.end(), chunk.tokens.begin(), chunk.tokens.end());
      for (std::size_t i = 0; i < chunk.tokens.size(); ++i, ++row) {
        hash_.rows(table, std::span<const TokenId>(tokens_).first(zu(behind) + i + 1),
                   row_ids_.data() + row * per_token);
      }
    }
    const std::int64_t width = per_token * config_.engram->head_dim;
    const std::int64_t kv_width = (config_.streams + 1) * config_.hidden;
    ops_.engram_gather(exec_, {row_ids_.data(), per_token, w.table.data(), w.scale.data(),
                               config_.engram->head_dim, c.rows(), rows_.data()});
    const float* x = quantized_input(c, rows_.data(), width, quantized_rows_.data());
    ops_.linear(exec_, {x, width, w.wkv, engram_kv_.data(), kv_width, c.rows(), c.round()});
    ops_.engram_gate(exec_, {.x = streams_.data(),
                             .kv = engram_kv_.data(),
                             .qk_weight = w.qk_weight.data(),
                             .image = nullptr,
                             .rows = c.rows(),
                             .dim = config_.hidden,
                             .eps = static_cast<float>(config_.norm_eps),
                             .round = c.round()});
    c.observe("engram_out", layer, streams_.data(), config_.streams * config_.hidden);
  }

  EngramHash hash_;
  std::vector<EngramWeights> engram_;
  HyperMix attn_mix_, ffn_mix_;
  std::vector<TokenId> tokens_;
  std::vector<std::int64_t> row_ids_;
  std::vector<float> rows_, quantized_rows_, engram_kv_;
};

}  // namespace

Result<std::unique_ptr<Decoder>> open_deepseek_v41(Checkpoint checkpoint, const ModelConfig& config,
                                                   const ModelOptions& options,
                                                   std::vector<std::int32_t> token_map, CacheStorage cache) {
  EngramHash hash;
  if (config.engram) {
    if (config.quantization.block == 0) {
      return unsupported(
          "Engram tables are read in FP8 only; `deepinfer convert --quantize` writes a copy that runs",
          checkpoint.folder());
    }
    DI_ASSIGN(hash, EngramHash::create(*config.engram, std::move(token_map)));
  }
  return std::unique_ptr<Decoder>(std::make_unique<DeepseekV41>(std::move(checkpoint), config, options,
                                                                std::move(hash), std::move(cache)));
}

}  // namespace deepinfer
