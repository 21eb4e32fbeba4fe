#include "model/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/rope_table.h"
#include "model/rope_frequencies.h"

namespace deepinfer {
namespace {

constexpr std::int64_t kDefaultRows = 512;

std::size_t zu(std::int64_t v) {
  return static_cast<std::size_t>(v);
}

}  // namespace

LayerWeights LayerWeights::load(WeightLoader& loader, const std::string& prefix, std::int64_t experts,
                                std::int64_t top_k) {
  return {.attn_hyper = HyperWeights::load(loader, prefix + ".hc_attn"),
          .ffn_hyper = HyperWeights::load(loader, prefix + ".hc_ffn"),
          .attn_norm = loader.vector(prefix + ".attn_norm.weight"),
          .ffn_norm = loader.vector(prefix + ".ffn_norm.weight"),
          .attention = AttentionWeights::load(loader, prefix + ".attn"),
          .moe = MoeWeights::load(loader, prefix + ".ffn", experts, top_k)};
}

Decoder::Decoder(Checkpoint checkpoint, ModelConfig config, const ModelOptions& options, CacheStorage cache)
    : checkpoint_(std::move(checkpoint)),
      config_(std::move(config)),
      numerics_(options.numerics),
      ops_(make_op_table(options.kernels)),
      threads_(options.threads),
      exec_{&threads_},
      max_rows_(options.max_rows > 0 ? options.max_rows : kDefaultRows),
      cache_(std::move(cache)),
      loader_(checkpoint_, config_, wants_packed_weights(options.kernels), exec_),
      plain_frequencies_(plain_rope_frequencies(config_)),
      compressed_frequencies_(compressed_rope_frequencies(config_)),
      attention_scratch_(config_, max_rows_),
      moe_scratch_(config_, max_rows_) {
  embedding_ = loader_.bf16("embed.weight");
  head_ = loader_.matrix("head");
  final_norm_ = loader_.vector("norm.weight");
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    layers_.push_back(LayerWeights::load(loader_, fmt::format("layers.{}", layer), config_.experts,
                                         config_.experts_per_token));
  }
  streams_.resize(zu(max_rows_ * config_.streams * config_.hidden));
  input_.resize(zu(max_rows_ * config_.hidden));
  output_.resize(input_.size());
  final_pre_.resize(zu(max_rows_ * config_.streams));
  rotations_.plain.resize(zu(max_rows_ * config_.rope_dim));
  rotations_.compressed.resize(rotations_.plain.size());
}

Status Decoder::check_chunks(std::span<const Chunk> chunks) const {
  std::int64_t rows = 0;
  std::vector<bool> used(zu(cache_.size().slot_count), false);
  for (const Chunk& chunk : chunks) {
    const auto count = static_cast<std::int64_t>(chunk.tokens.size());
    DI_CHECK(count > 0 && chunk.start >= 0, "empty chunk");
    DI_CHECK(chunk.slot >= 0 && chunk.slot < cache_.size().slot_count && !used[zu(chunk.slot)], "slot ",
             chunk.slot);
    used[zu(chunk.slot)] = true;
    const std::int64_t blocks = (chunk.start + count + kBlockTokens - 1) / kBlockTokens;
    DI_CHECK(static_cast<std::int64_t>(chunk.blocks.size()) >= blocks, "block table too short");
    for (std::int64_t b = 0; b < blocks; ++b) {
      DI_CHECK(chunk.blocks[zu(b)] >= 0 && chunk.blocks[zu(b)] < cache_.size().block_count,
               "block outside the cache");
    }
    for (const TokenId id : chunk.tokens) {
      if (id < 0 || id >= config_.vocab_size) {
        return invalid_argument(
            fmt::format("token id {} outside the vocabulary of {}", id, config_.vocab_size));
      }
    }
    if (chunk.start + count > config_.max_positions) {
      return invalid_argument(fmt::format("position {} is beyond the model's {}", chunk.start + count - 1,
                                          config_.max_positions));
    }
    rows += count;
  }
  DI_CHECK(rows <= max_rows_, "step of ", rows, " rows, the model takes ", max_rows_);
  return {};
}

Status Decoder::check_finite(const std::vector<float>& pre, std::int64_t rows, std::int64_t layer) const {
  for (std::int64_t i = 0; i < rows * config_.streams; ++i) {
    if (!std::isfinite(pre[zu(i)])) {
      return Error{ErrorCode::kInternal,
                   fmt::format("a value is not finite in row {} of the step", i / config_.streams),
                   fmt::format("layer {}", layer)};
    }
  }
  return {};
}

Status Decoder::forward(std::span<const Chunk> chunks) {
  output_rows_ = 0;
  if (chunks.empty()) return {};
  DI_TRY(check_chunks(chunks));
  builder_.build(chunks);
  const BlockContext c{config_, numerics_, ops_, exec_, builder_.rows(), builder_.ids(), observer_};
  fill_rope_table(c.step.position, plain_frequencies_, rotations_.plain.data());
  fill_rope_table(c.step.position, compressed_frequencies_, rotations_.compressed.data());
  ops_.embed(exec_, {builder_.ids().data(), embedding_.data(), streams_.data(), c.rows(), config_.streams,
                     config_.hidden});
  DI_TRY(run_layers(c, chunks));
  collect_outputs(c, chunks);
  for (std::int64_t i = 0; i < output_rows_ * config_.hidden; ++i) {
    if (!std::isfinite(hidden_rows_[zu(i)])) {
      return Error{ErrorCode::kInternal, fmt::format("output row {} is not finite", i / config_.hidden),
                   "final norm"};
    }
  }
  return {};
}

void Decoder::collect_outputs(const BlockContext& c, std::span<const Chunk> chunks) {
  const std::int64_t hidden = config_.hidden, width = config_.streams * hidden;
  // Wanted rows move to the front of the streams; each lands at or before its place.
  std::int64_t row = 0;
  for (const Chunk& chunk : chunks) {
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(chunk.tokens.size()); ++i, ++row) {
      if (i < chunk.logits_from) continue;
      if (row != output_rows_) {
        std::copy_n(streams_.data() + row * width, width, streams_.data() + output_rows_ * width);
        std::copy_n(final_pre_.data() + row * config_.streams, config_.streams,
                    final_pre_.data() + output_rows_ * config_.streams);
      }
      ++output_rows_;
    }
  }
  hidden_rows_.resize(zu(output_rows_ * hidden));
  ops_.hyper_collapse(
      exec_, {streams_.data(), final_pre_.data(), hidden_rows_.data(), output_rows_, hidden, c.round()});
  ops_.rms_norm(exec_, {hidden_rows_.data(), hidden_rows_.data(), hidden, output_rows_, 1, hidden,
                        final_norm_.data(), static_cast<float>(config_.norm_eps), c.round()});
}

Status Decoder::logits(std::int64_t first, std::int64_t count, std::span<float> out) {
  DI_CHECK(first >= 0 && count >= 0 && first + count <= output_rows_, "output rows out of range");
  DI_CHECK(static_cast<std::int64_t>(out.size()) >= count * config_.vocab_size, "logits do not fit");
  if (count == 0) return {};
  ops_.linear(exec_, {hidden_rows_.data() + first * config_.hidden, config_.hidden, head_, out.data(),
                      config_.vocab_size, count, Round::kNone});
  return {};
}

}  // namespace deepinfer
