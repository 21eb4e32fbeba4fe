#include "model/tensor_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "io/problem_list.h"

namespace deepinfer {

const char* tensor_kind_name(TensorKind kind) {
  switch (kind) {
    case TensorKind::kEmbedding:
      return "embedding";
    case TensorKind::kHead:
      return "head";
    case TensorKind::kAttention:
      return "attention";
    case TensorKind::kCompressor:
      return "compressors";
    case TensorKind::kIndexer:
      return "indexers";
    case TensorKind::kHyper:
      return "hyper-connections";
    case TensorKind::kRouter:
      return "routers";
    case TensorKind::kRoutedExpert:
      return "routed experts";
    case TensorKind::kSharedExpert:
      return "shared experts";
    case TensorKind::kEngramTable:
      return "engram tables";
    case TensorKind::kEngram:
      return "engram layers";
    case TensorKind::kNorm:
      return "norms";
    case TensorKind::kDraft:
      return "draft module";
    case TensorKind::kVision:
      return "vision";
  }
  return "?";
}

std::int64_t ExpectedTensor::parameters() const {
  if (is_scale) return 0;
  return element_count(shape).value_or(0) * (packed_fp4 ? 2 : 1);
}

std::int64_t ExpectedTensor::bytes() const {
  return element_count(shape).value_or(0) * static_cast<std::int64_t>(dtype_size_bytes(dtypes.front()));
}

namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// Adds tensors below one name prefix. The configuration decides how a linear is stored.
class Builder {
 public:
  explicit Builder(const ModelConfig& config) : c_(config) {}

  std::vector<ExpectedTensor> run() {
    add("embed.weight", TensorKind::kEmbedding, {DType::kBF16}, {c_.vocab_size, c_.hidden});
    for (int layer = 0; layer < static_cast<int>(c_.layers); ++layer) backbone_layer(layer);
    layer_ = -1;
    plain("norm.weight", TensorKind::kNorm, {c_.hidden});
    if (c_.family == Family::kDeepseekV4) hyper_head("", TensorKind::kHyper);
    plain("head.weight", TensorKind::kHead, {c_.vocab_size, c_.hidden});
    for (std::int64_t stage = 0; stage < c_.draft.stages; ++stage) draft_stage(stage);
    if (c_.vision) vision();
    return std::move(out_);
  }

 private:
  ExpectedTensor& add(std::string name, TensorKind kind, std::vector<DType> dtypes, Shape shape) {
    ExpectedTensor& t = out_.emplace_back();
    t.name = std::move(name);
    t.kind = override_kind_.value_or(kind);
    t.dtypes = std::move(dtypes);
    t.shape = std::move(shape);
    t.layer = layer_;
    return t;
  }
  /// Never quantised: BF16, or F32 in converted checkpoints.
  ExpectedTensor& plain(std::string name, TensorKind kind, Shape shape) {
    return add(std::move(name), kind, {DType::kBF16, DType::kF32}, std::move(shape));
  }
  /// Stored in fp32 because its precision matters.
  ExpectedTensor& exact(std::string name, TensorKind kind, Shape shape) {
    return add(std::move(name), kind, {DType::kF32}, std::move(shape));
  }
  /// name.weight [n, k], FP8 with a scale a tile_rows x tile_cols tile, or plain in unquantised checkpoints.
  void fp8(const std::string& name, TensorKind kind, std::int64_t n, std::int64_t k, std::int64_t tile_rows,
           std::int64_t tile_cols) {
    if (c_.quantization.block == 0) {
      plain(name + ".weight", kind, {n, k});
      return;
    }
    add(name + ".weight", kind, {DType::kF8E4M3}, {n, k});
    add(name + ".scale", kind, {DType::kF8E8M0}, {ceil_div(n, tile_rows), ceil_div(k, tile_cols)}).is_scale =
        true;
  }
  void linear(const std::string& name, TensorKind kind, std::int64_t n, std::int64_t k) {
    fp8(name, kind, n, k, c_.quantization.block, c_.quantization.block);
  }
  void expert_linear(const std::string& name, std::int64_t n, std::int64_t k) {
    if (!c_.quantization.fp4_experts) {
      linear(name, TensorKind::kRoutedExpert, n, k);
      return;
    }
    add(name + ".weight", TensorKind::kRoutedExpert, {DType::kI8}, {n, k / 2}).packed_fp4 = true;
    add(name + ".scale", TensorKind::kRoutedExpert, {DType::kF8E8M0}, {n, k / 32}).is_scale = true;
  }

  void attention(const std::string& p) {
    const TensorKind kind = TensorKind::kAttention;
    linear(p + "wq_a", kind, c_.q_rank, c_.hidden);
    plain(p + "q_norm.weight", kind, {c_.q_rank});
    linear(p + "wq_b", kind, c_.heads * c_.head_dim, c_.q_rank);
    linear(p + "wkv", kind, c_.head_dim, c_.hidden);
    plain(p + "kv_norm.weight", kind, {c_.head_dim});
    linear(p + "wo_a", kind, c_.o_groups * c_.o_rank, c_.heads / c_.o_groups * c_.head_dim);
    linear(p + "wo_b", kind, c_.hidden, c_.o_groups * c_.o_rank);
    exact(p + "attn_sink", kind, {c_.heads});
  }

  /// V4.1: the gate only where two tokens share an entry.
  void compressor_v41(const std::string& p, std::int64_t ratio) {
    plain(p + "wkv.weight", TensorKind::kCompressor, {c_.head_dim, c_.hidden});
    if (ratio > 1) plain(p + "wgate.weight", TensorKind::kCompressor, {c_.head_dim, c_.hidden});
    plain(p + "norm.weight", TensorKind::kCompressor, {c_.head_dim});
  }
  /// V4: ratio 4 overlaps two groups and so has two series of `dim` channels.
  void compressor_v4(const std::string& p, TensorKind kind, std::int64_t ratio, std::int64_t dim) {
    const std::int64_t width = ratio == 4 ? 2 * dim : dim;
    plain(p + "wkv.weight", kind, {width, c_.hidden});
    plain(p + "wgate.weight", kind, {width, c_.hidden});
    exact(p + "ape", kind, {ratio, width});
    plain(p + "norm.weight", kind, {dim});
  }

  void caches(const std::string& p, const LayerPlan& plan) {
    const TensorKind kind = TensorKind::kIndexer;
    const std::int64_t index_dim = c_.index_head_dim;
    if (c_.family == Family::kDeepseekV4) {
      if (plan.owns_pool) compressor_v4(p + "compressor.", TensorKind::kCompressor, plan.ratio, c_.head_dim);
      if (plan.runs_index) compressor_v4(p + "indexer.compressor.", kind, plan.ratio, index_dim);
    } else if (plan.owns_pool) {
      compressor_v41(p + "compressor.", plan.ratio);
      plain(p + "indexer.wk.weight", kind, {index_dim, c_.head_dim});
      plain(p + "indexer.k_norm.weight", kind, {index_dim});
    }
    if (!plan.runs_index) return;
    linear(p + "indexer.wq_b", kind, c_.index_heads * index_dim, c_.q_rank);
    plain(p + "indexer.weights_proj.weight", kind, {c_.index_heads, c_.hidden});
  }

  void hyper(const std::string& p) {
    const std::int64_t mixes = (2 + c_.streams) * c_.streams;
    for (const char* site : {"hc_attn_", "hc_ffn_"}) {
      exact(p + site + "fn", TensorKind::kHyper, {mixes, c_.streams * c_.hidden});
      exact(p + site + "base", TensorKind::kHyper, {mixes});
      exact(p + site + "scale", TensorKind::kHyper, {3});
    }
  }
  void hyper_head(const std::string& p, TensorKind kind) {
    exact(p + "hc_head_fn", kind, {c_.streams, c_.streams * c_.hidden});
    exact(p + "hc_head_base", kind, {c_.streams});
    exact(p + "hc_head_scale", kind, {1});
  }

  enum class PictureBias { kNone, kOptional, kRequired };

  void feed_forward(const std::string& p, std::int64_t experts, std::int64_t per_token, bool hashed,
                    PictureBias picture) {
    plain(p + "gate.weight", TensorKind::kRouter, {experts, c_.hidden});
    if (hashed)
      add(p + "gate.tid2eid", TensorKind::kRouter, {DType::kI64, DType::kI32}, {c_.vocab_size, per_token});
    else
      exact(p + "gate.bias", TensorKind::kRouter, {experts});
    if (picture != PictureBias::kNone)
      exact(p + "gate.bias_vl", TensorKind::kRouter, {experts}).optional = picture == PictureBias::kOptional;
    for (std::int64_t e = 0; e < experts; ++e) {
      const std::string expert = fmt::format("{}experts.{}.", p, e);
      expert_linear(expert + "w1", c_.expert_inner, c_.hidden);
      expert_linear(expert + "w2", c_.hidden, c_.expert_inner);
      expert_linear(expert + "w3", c_.expert_inner, c_.hidden);
    }
    const std::int64_t shared = c_.shared_experts * c_.expert_inner;
    linear(p + "shared_experts.w1", TensorKind::kSharedExpert, shared, c_.hidden);
    linear(p + "shared_experts.w2", TensorKind::kSharedExpert, c_.hidden, shared);
    linear(p + "shared_experts.w3", TensorKind::kSharedExpert, shared, c_.hidden);
  }

  void layer_norms(const std::string& p) {
    plain(p + "attn_norm.weight", TensorKind::kNorm, {c_.hidden});
    plain(p + "ffn_norm.weight", TensorKind::kNorm, {c_.hidden});
  }

  void engram(const std::string& p, std::size_t table) {
    const EngramConfig& e = *c_.engram;
    const std::int64_t gathered = (e.max_ngram - 1) * e.heads * e.head_dim;
    fp8(p + "embed", TensorKind::kEngramTable, e.table_rows[table], e.head_dim, 1, 32);
    linear(p + "wkv", TensorKind::kEngram, (c_.streams + 1) * c_.hidden, gathered);
    plain(p + "q_weight", TensorKind::kEngram, {c_.streams, c_.hidden});
    plain(p + "k_weight", TensorKind::kEngram, {c_.streams, c_.hidden});
  }

  void backbone_layer(int layer) {
    layer_ = layer;
    const LayerPlan& plan = c_.plan[static_cast<std::size_t>(layer)];
    const std::string p = fmt::format("layers.{}.", layer);
    if (plan.engram >= 0) engram(p + "engram.", static_cast<std::size_t>(plan.engram));
    layer_norms(p);
    attention(p + "attn.");
    caches(p + "attn.", plan);
    hyper(p);
    // Checkpoints with a picture tower route picture tokens by a second bias; text-only copies may keep it.
    const bool v41 = c_.family == Family::kDeepseekV41;
    const PictureBias picture = c_.vision && !plan.hash_routed ? PictureBias::kRequired
                                : c_.vision || v41             ? PictureBias::kOptional
                                                               : PictureBias::kNone;
    feed_forward(p + "ffn.", c_.experts, c_.experts_per_token, plan.hash_routed, picture);
  }

  void draft_stage(std::int64_t stage) {
    override_kind_ = TensorKind::kDraft;
    const TensorKind kind = TensorKind::kDraft;
    const DraftConfig& d = c_.draft;
    const bool v4 = c_.family == Family::kDeepseekV4;
    const bool first = stage == 0;
    const bool last = stage == d.stages - 1;
    const std::string p = fmt::format("mtp.{}.", stage);
    layer_norms(p);
    attention(p + "attn.");
    hyper(p);
    if (d.dspark)
      feed_forward(p + "ffn.", d.experts, d.experts_per_token, false, PictureBias::kOptional);
    else
      feed_forward(p + "ffn.", c_.experts, c_.experts_per_token, false, PictureBias::kOptional);
    if (!d.dspark) {
      linear(p + "e_proj", kind, c_.hidden, c_.hidden);
      linear(p + "h_proj", kind, c_.hidden, c_.hidden);
      plain(p + "enorm.weight", kind, {c_.hidden});
      plain(p + "hnorm.weight", kind, {c_.hidden});
    }
    if (d.dspark && first) {
      linear(p + "main_proj", kind, c_.hidden, static_cast<std::int64_t>(d.target_layers.size()) * c_.hidden);
      plain(p + "main_norm.weight", kind, {c_.hidden});
    }
    if (last || !d.dspark) {
      plain(p + "norm.weight", kind, {c_.hidden});
      if (v4) hyper_head(p, kind);
    }
    if (d.dspark && last) {
      plain(p + (v4 ? "markov_head.markov_w1.weight" : "markov_head.embed.weight"), kind,
            {c_.vocab_size, d.markov_rank});
      plain(p + (v4 ? "markov_head.markov_w2.weight" : "markov_head.head.weight"), kind,
            {c_.vocab_size, d.markov_rank});
      plain(p + "confidence_head.proj.weight", kind, {1, c_.hidden + d.markov_rank});
    }
    override_kind_.reset();
  }

  void vision() {
    const TensorKind kind = TensorKind::kVision;
    const VisionConfig& v = *c_.vision;
    const auto biased = [&](const std::string& name, std::int64_t n, std::int64_t k) {
      plain(name + ".weight", kind, {n, k});
      plain(name + ".bias", kind, {n});
    };
    for (const char* name : {"image_start", "image_end", "image_newline"}) plain(name, kind, {c_.hidden});
    plain("image_pad", kind, {c_.hidden}).optional = true;  // published, and read by nothing
    biased("vision.patch_embed.proj", v.hidden, 3 * v.patch * v.patch);
    for (std::int64_t block = 0; block < v.layers; ++block) {
      const std::string p = fmt::format("vision.blocks.{}.", block);
      plain(p + "norm1.weight", kind, {v.hidden});
      plain(p + "norm2.weight", kind, {v.hidden});
      biased(p + "attn.wqkv", 3 * v.hidden, v.hidden);
      biased(p + "attn.wo", v.hidden, v.hidden);
      plain(p + "mlp.w1.weight", kind, {2 * v.inner, v.hidden});
      plain(p + "mlp.w2.weight", kind, {v.hidden, v.inner});
    }
    plain("vision.norm.weight", kind, {v.hidden});
    biased("aligner.w1", c_.hidden, v.downsample * v.downsample * v.hidden);
    biased("aligner.w2", c_.hidden, c_.hidden);
  }

  const ModelConfig& c_;
  std::vector<ExpectedTensor> out_;
  std::optional<TensorKind> override_kind_;
  int layer_ = -1;
};

std::string dtype_list(const std::vector<DType>& dtypes) {
  std::string out;
  for (const DType d : dtypes) out += (out.empty() ? "" : " or ") + std::string(dtype_name(d));
  return out;
}

}  // namespace

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config) {
  return Builder(config).run();
}

Status check_tensors(const Checkpoint& checkpoint, const std::vector<ExpectedTensor>& expected) {
  ProblemList problems(10);
  std::unordered_set<std::string_view> known;
  known.reserve(expected.size());
  for (const ExpectedTensor& want : expected) {
    known.insert(want.name);
    const TensorView* have = checkpoint.find(want.name);
    if (have == nullptr) {
      if (want.optional) continue;
      if (want.is_scale)
        problems.add("missing scales",
                     fmt::format("missing tensor {}: without it the quantised weight beside "
                                 "it cannot be read",
                                 want.name));
      else
        problems.add("missing tensors", fmt::format("missing tensor {} ({} {})", want.name,
                                                    dtype_list(want.dtypes), shape_text(want.shape)));
      continue;
    }
    if (std::find(want.dtypes.begin(), want.dtypes.end(), have->dtype) == want.dtypes.end())
      problems.add("mis-typed tensors", fmt::format("tensor {} has type {}, expected {}", want.name,
                                                    dtype_name(have->dtype), dtype_list(want.dtypes)));
    if (have->shape != want.shape)
      problems.add("mis-shaped tensors", fmt::format("tensor {} has shape {}, expected {}", want.name,
                                                     shape_text(have->shape), shape_text(want.shape)));
  }
  for (const std::string_view name : checkpoint.names()) {
    if (!known.contains(name))
      problems.add("unknown tensors", fmt::format("tensor {} does not belong to this model", name));
  }
  if (problems.empty()) return {};
  return problems.error(ErrorCode::kCorrupt, "the tensors do not match config.json:", checkpoint.folder());
}

}  // namespace deepinfer
