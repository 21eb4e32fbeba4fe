#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "io/json.h"
#include "model/config_fields.h"
#include "model/layer_plan.h"

namespace deepinfer {
namespace {

constexpr std::int64_t kMaxWidth = std::int64_t{1} << 17;
constexpr std::int64_t kMaxLayers = 1024;
constexpr std::int64_t kMaxExpertTensors = std::int64_t{1} << 20;  // experts of all layers together
constexpr std::int64_t kMaxVocab = std::int64_t{1} << 24;
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 30;

/// Typed access to the collected fields; what is wrong goes to fields.problems and a default comes back.
class Reader {
 public:
  explicit Reader(ConfigFields& fields) : fields_(fields) {}

  bool has(std::string_view name) const { return fields_.find(name) != nullptr; }

  std::int64_t integer(std::string_view name, std::int64_t min, std::int64_t max) {
    return has(name) ? integer_or(name, min, max, min) : missing(name, min);
  }
  std::int64_t integer_or(std::string_view name, std::int64_t min, std::int64_t max, std::int64_t absent) {
    const JsonRef* field = fields_.find(name);
    return field == nullptr ? absent : taken(field->as_int(min, max), min);
  }
  double real(std::string_view name, double min, double max) {
    return has(name) ? real_or(name, min, max, min) : missing(name, min);
  }
  double real_or(std::string_view name, double min, double max, double absent) {
    const JsonRef* field = fields_.find(name);
    return field == nullptr ? absent : taken(field->as_double(min, max), min);
  }
  std::string text_or(std::string_view name, std::string_view absent) {
    const JsonRef* field = fields_.find(name);
    return field == nullptr ? std::string(absent) : taken(field->as_string(), std::string(absent));
  }
  std::vector<std::int64_t> integers(std::string_view name, std::int64_t min, std::int64_t max) {
    std::vector<std::int64_t> out;
    const JsonRef* field = fields_.find(name);
    if (field == nullptr) return out;
    for (const JsonRef& element : taken(field->elements(), {}))
      out.push_back(taken(element.as_int(min, max), min));
    return out;
  }
  std::vector<std::string> texts(std::string_view name) {
    std::vector<std::string> out;
    const JsonRef* field = fields_.find(name);
    if (field == nullptr) return out;
    for (const JsonRef& element : taken(field->elements(), {})) out.push_back(taken(element.as_string(), {}));
    return out;
  }
  /// The field may be absent; when it is there it must have one of these values.
  void only(std::string_view name, std::initializer_list<Json> values) {
    const JsonRef* field = fields_.find(name);
    if (field == nullptr) return;
    for (const Json& value : values) {
      if (field->value() == value) return;
    }
    fields_.problem(field->error(fmt::format("{} is not supported, only {}", to_json_text(field->value()),
                                             to_json_text(*values.begin()))));
  }
  void problem(std::string text) { fields_.problems.push_back(std::move(text)); }
  void require(bool condition, std::string text) {
    if (!condition) problem(std::move(text));
  }

 private:
  template <class T>
  T taken(Result<T> value, T otherwise) {
    if (value.ok()) return std::move(*value);
    fields_.problem(value.error());
    return otherwise;
  }
  template <class T>
  T missing(std::string_view name, T otherwise) {
    problem(fmt::format("the field \"{}\" is missing", name));
    return otherwise;
  }
  ConfigFields& fields_;
};

/// The family by model_type; without one (inference/config.json) by the fields only one family has.
Result<Family> find_family(const Json& document, const ConfigFields& fields, std::string& model_type) {
  if (const Json* stated = document.find("model_type"); stated != nullptr && stated->is_string())
    model_type = stated->as_string();
  if (model_type.empty() && fields.reference_names)
    model_type = fields.find("kv_source_layer_ids") != nullptr ? "deepseek_v41" : "deepseek_v4";
  if (model_type == "deepseek_v41" || model_type == "deepseek_v41_text") return Family::kDeepseekV41;
  if (model_type == "deepseek_v4") return Family::kDeepseekV4;
  if (model_type.empty()) return invalid_argument("the field \"model_type\" is missing", "config.json");
  return unsupported(fmt::format("unknown model_type {}; this engine runs deepseek_v4 and deepseek_v41",
                                 json_quote(model_type)),
                     "config.json");
}

void read_sizes(Reader& in, ModelConfig& c) {
  c.vocab_size = in.integer("vocab_size", 1, kMaxVocab);
  c.hidden = in.integer("hidden_size", 1, kMaxWidth);
  c.layers = in.integer("num_hidden_layers", 1, kMaxLayers);
  c.heads = in.integer("num_attention_heads", 1, 4096);
  c.head_dim = in.integer("head_dim", 2, 8192);
  c.rope_dim = in.integer("qk_rope_head_dim", 2, 8192);
  c.q_rank = in.integer("q_lora_rank", 1, kMaxWidth);
  c.o_groups = in.integer("o_groups", 1, 4096);
  c.o_rank = in.integer("o_lora_rank", 1, kMaxWidth);
  c.experts = in.integer("n_routed_experts", 1, 65536);
  c.shared_experts = in.integer_or("n_shared_experts", 1, 1, 1);
  c.experts_per_token = in.integer("num_experts_per_tok", 1, 1024);
  c.expert_inner = in.integer("moe_intermediate_size", 1, kMaxWidth);
  c.routed_scale = in.real("routed_scaling_factor", 1e-6, 1e6);
  c.gate_temperature = in.real_or("gate_temp", 1e-6, 1e6, 1.0);
  c.swiglu_limit = in.real("swiglu_limit", 1e-6, 1e30);
  c.norm_eps = in.real("rms_norm_eps", 1e-38, 1.0);
  c.rope_theta = in.real("rope_theta", 1.0, 1e12);
  c.compress_rope_theta = in.real("compress_rope_theta", 1.0, 1e12);
  c.max_positions = in.integer_or("max_position_embeddings", 1, kMaxPositions, std::int64_t{1} << 20);
  c.window = in.integer("sliding_window", 1, 65536);
  c.index_heads = in.integer("index_n_heads", 1, 4096);
  c.index_head_dim = in.integer("index_head_dim", 2, 8192);
  c.index_top_k = in.integer("index_topk", 1, kMaxWidth);
  c.streams = in.integer("hc_mult", 1, 16);
  c.sinkhorn_iterations = in.integer("hc_sinkhorn_iters", 1, 1000);
  c.hyper_eps = in.real("hc_eps", 0.0, 1.0);
}

void read_tokens(Reader& in, ModelConfig& c) {
  const auto id = [&](std::string_view name, std::int64_t absent) {
    return static_cast<TokenId>(in.integer_or(name, 0, c.vocab_size - 1, absent));
  };
  c.bos = id("bos_token_id", 0);
  c.eos = id("eos_token_id", 1);
  c.pad = id("pad_token_id", 2);
  c.image_token = id("image_token_id", -1);
}

void read_yarn(Reader& in, ModelConfig& c) {
  const bool given = in.has("yarn.factor") || in.has("yarn.rope_type") || in.has("yarn.type");
  if (!given) return;
  in.only("yarn.rope_type", {"yarn"});
  in.only("yarn.type", {"yarn"});
  YarnScaling yarn;
  yarn.original_max_positions = in.integer("yarn.original_max_position_embeddings", 0, kMaxPositions);
  yarn.factor = in.real("yarn.factor", 1.0, 1e6);
  yarn.beta_fast = in.real_or("yarn.beta_fast", 1e-3, 1e6, 32);
  yarn.beta_slow = in.real_or("yarn.beta_slow", 1e-3, 1e6, 1);
  if (yarn.original_max_positions > 0) c.yarn = yarn;  // 0 is how the reference says "no scaling"
}

void read_quantization(Reader& in, const ConfigFields& fields, ModelConfig& c) {
  const std::int64_t family_block = c.family == Family::kDeepseekV41 ? 32 : 128;
  in.only("quant.quant_method", {"fp8"});
  in.only("quant.activation_scheme", {"dynamic"});
  in.only("quant.scale_fmt", {"ue8m0"});
  in.only("quant.fmt", {"e4m3"});
  if (fields.reference_names) {
    in.only("weight_dtype", {"fp8", "bf16"});
    c.quantization.block = in.text_or("weight_dtype", "bf16") == "fp8" ? family_block : 0;
  } else if (in.has("quant.quant_method") || in.has("quant.weight_block_size")) {
    const auto block = in.has("quant.weight_block_size")
                           ? in.integers("quant.weight_block_size", 1, 1 << 20)
                           : std::vector<std::int64_t>{family_block, family_block};
    const bool supported = block.size() == 2 && block[0] == block[1] && (block[0] == 32 || block[0] == 128);
    in.require(supported,
               "/quantization_config/weight_block_size: only [32, 32] and [128, 128] are supported");
    if (supported) c.quantization.block = block[0];
  }
  // V4.1 keeps expert_dtype inside quantization_config, V4 at the top level.
  in.only("expert_dtype", {"fp4", "fp8", "bf16"});
  in.only("quant.expert_dtype", {"fp4", "fp8", "bf16"});
  const std::string expert = in.text_or("quant.expert_dtype", in.text_or("expert_dtype", ""));
  c.quantization.fp4_experts = expert == "fp4";
  if (c.quantization.block == 0)
    in.require(expert.empty() || expert == "bf16",
               fmt::format("expert_dtype \"{}\" without an FP8 quantization_config", expert));
  else
    in.require(expert != "bf16", "expert_dtype \"bf16\" inside an FP8 checkpoint is not supported");
}

void read_engram(Reader& in, ModelConfig& c) {
  EngramConfig engram;
  engram.layers = in.integers("engram_layer_ids", 0, c.layers - 1);
  if (engram.layers.empty()) return;
  engram.table_rows = in.integers("engram_num_embeddings", 1, std::int64_t{1} << 33);
  in.require(engram.table_rows.size() == engram.layers.size(),
             "engram_num_embeddings and engram_layer_ids differ in length");
  engram.max_ngram = in.integer("engram_max_ngram_size", 2, 16);
  engram.heads = in.integer("engram_n_heads", 1, 256);
  engram.head_dim = in.integer("engram_head_dim", 32, 65536);
  engram.vocab_start = in.integer("engram_vocab_size", 2, std::int64_t{1} << 40);
  engram.pad_token = in.integer("engram_pad_token_id", 0, c.vocab_size - 1);
  engram.compressed_vocab = in.integer("engram_compressed_vocab_size", 1, c.vocab_size);
  in.require(engram.head_dim % 32 == 0, "engram_head_dim is not a multiple of 32");
  c.engram = engram;
}

void read_draft(Reader& in, ModelConfig& c) {
  DraftConfig& draft = c.draft;
  draft.stages = in.integer_or("num_nextn_predict_layers", 0, 64, 0);
  const bool dspark = in.has("dspark_target_layer_ids") && in.has("dspark_block_size");
  if (c.family == Family::kDeepseekV41 && draft.stages > 0 && !dspark)
    in.problem(
        "num_nextn_predict_layers asks for draft stages, but dspark_block_size or dspark_target_layer_ids is "
        "missing");
  if (!dspark) return;
  draft.target_layers = in.integers("dspark_target_layer_ids", 0, c.layers - 1);
  // V4 releases with DSpark still say num_nextn_predict_layers 1; there is one stage a target layer.
  if (c.family == Family::kDeepseekV4 && draft.stages == 1)
    draft.stages = static_cast<std::int64_t>(draft.target_layers.size());
  if (draft.stages == 0) {  // a truncated copy without its drafter
    draft.target_layers.clear();
    return;
  }
  draft.dspark = true;
  in.require(!draft.target_layers.empty(), "dspark_target_layer_ids is empty");
  draft.block_size = in.integer("dspark_block_size", 1, 64);
  draft.noise_token = in.integer("dspark_noise_token_id", 0, c.vocab_size - 1);
  draft.markov_rank = in.integer("dspark_markov_rank", 1, kMaxWidth);
  draft.experts = in.integer_or("dspark_n_routed_experts", 1, 65536, c.experts);
  draft.experts_per_token = in.integer_or("dspark_num_experts_per_tok", 1, 1024, c.experts_per_token);
  in.require(draft.experts_per_token <= draft.experts,
             "dspark_num_experts_per_tok is larger than dspark_n_routed_experts");
}

void read_vision(Reader& in, ModelConfig& c) {
  VisionConfig v;
  v.layers = in.integer("vision.num_hidden_layers", 1, kMaxLayers);
  v.hidden = in.integer("vision.hidden_size", 1, kMaxWidth);
  v.heads = in.integer("vision.num_attention_heads", 1, 4096);
  v.inner = in.integer("vision.intermediate_size", 1, kMaxWidth);
  v.patch = in.integer_or("vision.patch_size", 1, 1024, 14);
  v.downsample = in.integer_or("vision.downsample_ratio", 1, 64, 3);
  v.rope_theta = in.real_or("vision.rope_theta", 1.0, 1e12, 10000);
  v.max_image_tokens = in.integer_or("vision.max_image_tokens", 8, 1 << 20, 1024);
  v.min_pixels = in.integer_or("vision.min_pixels", 0, std::int64_t{1} << 40, 0);
  if (in.has("vision.max_wh_ratio")) v.max_wh_ratio = in.real("vision.max_wh_ratio", 1.0, 1e6);
  in.require(v.hidden % v.heads == 0 && v.hidden / v.heads % 4 == 0,
             "vision_config: hidden_size / num_attention_heads must be a multiple of 4");
  in.require(c.image_token >= 0, "vision_config needs image_token_id");
  c.vision = v;
}

/// The one value of each field that the forward passes implement.
void check_fixed_values(Reader& in, const ModelConfig& c) {
  in.only("scoring_func", {"sqrtsoftplus"});
  in.only("topk_method", {"noaux_tc"});
  in.only("norm_topk_prob", {true});
  in.only("hidden_act", {"silu"});
  in.only("attention_bias", {false});
  in.only("mlp_bias", {false});
  in.only("tie_word_embeddings", {false});
  in.only("num_key_value_heads", {1});
  in.only("n_group", {1});
  in.only("topk_group", {1});
  in.only("first_k_dense_replace", {0});
  in.only("moe_layer_freq", {1});
  in.only("hc_mult", {4});
  if (in.has("partial_rotary_factor")) {
    const double factor = in.real("partial_rotary_factor", 0.0, 1.0);
    in.require(std::fabs(factor * static_cast<double>(c.head_dim) - static_cast<double>(c.rope_dim)) < 0.5,
               "partial_rotary_factor does not agree with qk_rope_head_dim / head_dim");
  }
}

void check_consistency(Reader& in, const ModelConfig& c) {
  const bool v41 = c.family == Family::kDeepseekV41;
  in.require(
      c.layers * c.experts <= kMaxExpertTensors && c.draft.stages * c.draft.experts <= kMaxExpertTensors,
      fmt::format("more than {} experts in all layers together", kMaxExpertTensors));
  in.require(c.rope_dim % 2 == 0, "qk_rope_head_dim is odd");
  in.require(c.rope_dim <= c.head_dim, "qk_rope_head_dim is larger than head_dim");
  in.require(c.rope_dim <= c.index_head_dim, "qk_rope_head_dim is larger than index_head_dim");
  in.require(c.heads % c.o_groups == 0,
             fmt::format("num_attention_heads {} is not a multiple of o_groups {}", c.heads, c.o_groups));
  in.require(c.experts_per_token <= c.experts, "num_experts_per_tok is larger than n_routed_experts");
  in.require(c.index_head_dim % 32 == 0,
             "index_head_dim is not a multiple of 32, the block of FP4 index keys");
  in.require(!v41 || c.head_dim % 32 == 0, "head_dim is not a multiple of 32, the block of FP8 window keys");
  in.require(v41 || (c.index_head_dim & (c.index_head_dim - 1)) == 0,
             "index_head_dim is not a power of two, which the Hadamard transform needs");
  in.require(c.hash_layers <= c.layers, "num_hash_layers is larger than num_hidden_layers");
  if (c.quantization.fp4_experts)
    in.require(c.hidden % 32 == 0 && c.expert_inner % 32 == 0,
               "FP4 experts need hidden_size and moe_intermediate_size in multiples of 32");
  if (c.candidate_blocks > 0)
    in.require(c.candidate_blocks * c.candidate_block >= c.index_top_k,
               "candidate_topk_blocks * candidate_block_size is smaller than index_topk");
}

/// compress_ratios (backbone layers, then optional zeros for the draft stages), or layer_types.
std::vector<std::int64_t> read_ratios(Reader& in, const ModelConfig& c) {
  std::vector<std::int64_t> ratios = in.integers("compress_ratios", 0, 1 << 20);
  if (!in.has("compress_ratios")) {
    for (const std::string& type : in.texts("layer_types")) {
      if (type == "sliding_attention")
        ratios.push_back(0);
      else if (type == "compressed_sparse_attention")
        ratios.push_back(4);
      else if (type == "heavily_compressed_attention")
        ratios.push_back(128);
      else
        in.problem(fmt::format("/layer_types: unknown attention kind {}", json_quote(type)));
    }
    if (!in.has("layer_types")) {
      in.problem("the field \"compress_ratios\" is missing");
      return {};
    }
  }
  const auto layers = static_cast<std::size_t>(c.layers);
  if (ratios.size() < layers) {
    in.problem(fmt::format("compress_ratios has {} entries for {} layers", ratios.size(), layers));
    return {};
  }
  in.require(ratios.size() <= layers + 64,
             fmt::format("compress_ratios has {} entries for {} layers", ratios.size(), layers));
  in.require(std::all_of(ratios.begin() + static_cast<std::ptrdiff_t>(layers), ratios.end(),
                         [](std::int64_t r) { return r == 0; }),
             "compress_ratios: the entries behind the last layer, for draft stages, must be 0");
  ratios.resize(layers);
  for (const std::int64_t r : ratios) {
    const bool fits =
        c.family == Family::kDeepseekV41 ? r == 0 || r == 1 || r == 2 : r == 0 || r == 4 || r == 128;
    if (!fits) in.problem(fmt::format("compress_ratios: {} is not a ratio of {}", r, c.model_type));
  }
  return ratios;
}

std::int64_t read_hash_layers(Reader& in) {
  if (in.has("num_hash_layers") || !in.has("mlp_layer_types"))
    return in.integer_or("num_hash_layers", 0, kMaxLayers, 0);
  const std::vector<std::string> types = in.texts("mlp_layer_types");
  const auto hashed = std::count(types.begin(), types.end(), "hash_moe");
  for (std::size_t i = 0; i < types.size(); ++i) {
    const bool expected = types[i] == (static_cast<std::ptrdiff_t>(i) < hashed ? "hash_moe" : "moe");
    if (!expected) {
      in.problem(fmt::format("/mlp_layer_types/{}: expected hash_moe layers first, then moe, found {}", i,
                             json_quote(types[i])));
      break;
    }
  }
  return hashed;
}

void read_family(Reader& in, ModelConfig& c, std::vector<std::string>& problems) {
  LayerLists lists;
  if (c.family == Family::kDeepseekV41) {
    lists.kv_sources = in.integers("kv_source_layer_ids", 0, c.layers - 1);
    lists.index_sources = in.integers("index_source_layer_ids", 0, c.layers - 1);
    lists.candidate_source = in.integer_or("candidate_source_layer_id", -1, c.layers - 1, -1);
    if (lists.candidate_source >= 0) {
      c.candidate_blocks = in.integer("candidate_topk_blocks", 1, 1 << 24);
      c.candidate_block = in.integer("candidate_block_size", 1, 4096);
    }
    read_engram(in, c);
    in.only("num_hash_layers", {0});
  } else {
    c.hash_layers = read_hash_layers(in);
    for (const char* name :
         {"kv_source_layer_ids", "index_source_layer_ids", "candidate_source_layer_id", "engram_layer_ids"})
      in.require(!in.has(name),
                 fmt::format("the field \"{}\" does not belong to a {} model", name, c.model_type));
  }
  read_draft(in, c);
  lists.ratios = read_ratios(in, c);
  if (problems.empty()) derive_layer_plan(lists, c, problems);
}

}  // namespace

Result<ModelConfig> parse_config(std::string_view json_text) {
  Result<Json> document = parse_json(json_text, {.max_bytes = std::size_t{16} << 20, .max_depth = 32});
  if (!document.ok())
    return invalid_argument("not valid JSON: " + document.error().to_string(), "config.json");
  if (!document->is_object())
    return invalid_argument(fmt::format("expected an object, found {}", document->kind_name()),
                            "config.json");

  ConfigFields fields = collect_config_fields(*document);
  ModelConfig c;
  DI_ASSIGN(c.family, find_family(*document, fields, c.model_type));
  Reader in(fields);
  read_sizes(in, c);
  read_tokens(in, c);
  read_yarn(in, c);
  read_quantization(in, fields, c);
  check_fixed_values(in, c);
  if (fields.has_vision) read_vision(in, c);
  read_family(in, c, fields.problems);
  if (fields.problems.empty()) check_consistency(in, c);
  if (fields.problems.empty()) return c;

  std::string text = "the configuration cannot be used:";
  constexpr std::size_t kShown = 40;
  for (std::size_t i = 0; i < std::min(kShown, fields.problems.size()); ++i)
    text += "\n  " + fields.problems[i];
  if (fields.problems.size() > kShown)
    text += fmt::format("\n  ... and {} more", fields.problems.size() - kShown);
  return invalid_argument(std::move(text), "config.json");
}

}  // namespace deepinfer
