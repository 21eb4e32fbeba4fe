#include "model/config_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace deepinfer {
namespace {

struct Alias {
  std::string_view spelling;   // as the reference's inference/config.json writes it
  std::string_view canonical;  // as config.json does
};

// Reference names that differ from the Hugging Face ones.
constexpr Alias kAliases[] = {
    {"dim", "hidden_size"},
    {"moe_inter_dim", "moe_intermediate_size"},
    {"n_layers", "num_hidden_layers"},
    {"n_hash_layers", "num_hash_layers"},
    {"n_mtp_layers", "num_nextn_predict_layers"},
    {"n_heads", "num_attention_heads"},
    {"n_activated_experts", "num_experts_per_tok"},
    {"score_func", "scoring_func"},
    {"route_scale", "routed_scaling_factor"},
    {"rope_head_dim", "qk_rope_head_dim"},
    {"norm_eps", "rms_norm_eps"},
    {"window_size", "sliding_window"},
    {"kv_source_layers", "kv_source_layer_ids"},
    {"index_source_layers", "index_source_layer_ids"},
    {"candidate_source_layer", "candidate_source_layer_id"},
    {"engram_pad_id", "engram_pad_token_id"},
    {"dspark_n_activated_experts", "dspark_num_experts_per_tok"},
    {"original_seq_len", "yarn.original_max_position_embeddings"},
    {"rope_factor", "yarn.factor"},
    {"beta_fast", "yarn.beta_fast"},
    {"beta_slow", "yarn.beta_slow"},
    {"scale_fmt", "quant.scale_fmt"},
    {"vision_n_layers", "vision.num_hidden_layers"},
    {"vision_dim", "vision.hidden_size"},
    {"vision_n_heads", "vision.num_attention_heads"},
    {"vision_inter_dim", "vision.intermediate_size"},
    {"vision_patch_size", "vision.patch_size"},
    {"vision_rope_theta", "vision.rope_theta"},
    {"vision_downsample_ratio", "vision.downsample_ratio"},
    {"vision_max_n_token", "vision.max_image_tokens"},
    {"vision_min_pixels", "vision.min_pixels"},
    {"vision_max_wh_ratio", "vision.max_wh_ratio"},
};

// Fields the engine reads, or holds against the one value it implements.
constexpr std::string_view kText[] = {"vocab_size",
                                      "hidden_size",
                                      "num_hidden_layers",
                                      "num_attention_heads",
                                      "num_key_value_heads",
                                      "head_dim",
                                      "qk_rope_head_dim",
                                      "q_lora_rank",
                                      "o_groups",
                                      "o_lora_rank",
                                      "moe_intermediate_size",
                                      "n_routed_experts",
                                      "n_shared_experts",
                                      "num_experts_per_tok",
                                      "scoring_func",
                                      "topk_method",
                                      "norm_topk_prob",
                                      "routed_scaling_factor",
                                      "gate_temp",
                                      "swiglu_limit",
                                      "rms_norm_eps",
                                      "rope_theta",
                                      "compress_rope_theta",
                                      "rope_scaling",
                                      "rope_parameters",
                                      "max_position_embeddings",
                                      "sliding_window",
                                      "compress_ratios",
                                      "layer_types",
                                      "mlp_layer_types",
                                      "num_hash_layers",
                                      "kv_source_layer_ids",
                                      "index_source_layer_ids",
                                      "index_n_heads",
                                      "index_head_dim",
                                      "index_topk",
                                      "candidate_source_layer_id",
                                      "candidate_topk_blocks",
                                      "candidate_block_size",
                                      "hc_mult",
                                      "hc_sinkhorn_iters",
                                      "hc_eps",
                                      "engram_layer_ids",
                                      "engram_num_embeddings",
                                      "engram_max_ngram_size",
                                      "engram_n_heads",
                                      "engram_head_dim",
                                      "engram_vocab_size",
                                      "engram_pad_token_id",
                                      "engram_compressed_vocab_size",
                                      "num_nextn_predict_layers",
                                      "dspark_block_size",
                                      "dspark_noise_token_id",
                                      "dspark_target_layer_ids",
                                      "dspark_markov_rank",
                                      "dspark_n_routed_experts",
                                      "dspark_num_experts_per_tok",
                                      "expert_dtype",
                                      "hidden_act",
                                      "attention_bias",
                                      "mlp_bias",
                                      "tie_word_embeddings",
                                      "n_group",
                                      "topk_group",
                                      "first_k_dense_replace",
                                      "moe_layer_freq",
                                      "partial_rotary_factor",
                                      "bos_token_id",
                                      "eos_token_id",
                                      "pad_token_id",
                                      "image_token_id"};

constexpr std::string_view kVision[] = {
    "num_hidden_layers", "hidden_size",      "num_attention_heads", "intermediate_size", "patch_size",
    "rope_theta",        "downsample_ratio", "max_image_tokens",    "min_pixels",        "max_wh_ratio"};

constexpr std::string_view kQuant[] = {"quant_method", "activation_scheme", "weight_block_size",
                                       "scale_fmt",    "expert_dtype",      "fmt"};

constexpr std::string_view kYarn[] = {"rope_type", "type",      "factor",
                                      "beta_fast", "beta_slow", "original_max_position_embeddings"};

// Known to have no influence on what an inference step computes.
constexpr std::string_view kIgnored[] = {"architectures",
                                         "model_type",
                                         "dtype",
                                         "torch_dtype",
                                         "transformers_version",
                                         "initializer_range",
                                         "use_cache",
                                         "attention_dropout",
                                         "auto_map",
                                         "max_batch_size",
                                         "max_seq_len",
                                         "temperature",
                                         "pretraining_tp",
                                         "aux_loss_alpha",
                                         "seq_aux",
                                         "output_router_logits",
                                         "router_aux_loss_coef",
                                         "router_jitter_noise",
                                         "output_attentions",
                                         "output_hidden_states",
                                         "return_dict",
                                         "id2label",
                                         "label2id",
                                         "chunk_size_feed_forward",
                                         "is_encoder_decoder",
                                         "problem_type",
                                         "ep_size",
                                         "name_or_path"};

template <class List>
bool contains(const List& list, std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

bool ignored(std::string_view name) {
  return contains(kIgnored, name) || (!name.empty() && name.front() == '_');
}

class Collector {
 public:
  explicit Collector(const Json& document) : document_(document) {}

  ConfigFields run() {
    const JsonRef root(document_);
    fields_.reference_names = document_.find("dim") != nullptr && document_.find("hidden_size") == nullptr;
    text_section(root, true);
    return std::move(fields_);
  }

 private:
  void put(std::string canonical, const JsonRef& value) {
    if (value.value().is_null()) return;
    if (canonical.rfind("vision.", 0) == 0) fields_.has_vision = true;
    const auto [twin, fresh] = fields_.values.emplace(canonical, value);
    if (fresh || twin->second.value() == value.value()) return;
    fields_.problem(value.error(fmt::format("contradicts {}, which says {}", twin->second.pointer(),
                                            to_json_text(twin->second.value()))));
  }

  void unknown(const JsonRef& value, std::string_view name) {
    fields_.problem(value.error(fmt::format(
        "the field \"{}\" is not known to this engine and may change what the model computes", name)));
  }

  /// The top level, or text_config inside it.
  void text_section(const JsonRef& section, bool top) {
    const auto members = section.members();
    if (!members.ok()) return fields_.problem(members.error());
    for (const auto& [name, value] : *members) {
      if (value.value().is_null()) continue;
      if (top && name == "text_config") {
        text_section(value, false);
      } else if (name == "vision_config") {
        known_section(value, "vision.", kVision, {"model_type"});
        fields_.has_vision = true;
      } else if (name == "quantization_config") {
        known_section(value, "quant.", kQuant, {});
      } else if (name == "rope_scaling") {
        known_section(value, "yarn.", kYarn, {});
      } else if (name == "rope_parameters") {
        rope_parameters(value);
      } else if (fields_.reference_names && name == "dtype") {
        put("weight_dtype", value);
      } else if (contains(kText, name)) {
        put(std::string(name), value);
      } else if (const Alias* alias = find_alias(name); alias != nullptr) {
        put(std::string(alias->canonical), value);
      } else if (!ignored(name)) {
        unknown(value, name);
      }
    }
  }

  template <class List>
  void known_section(const JsonRef& section, std::string_view prefix, const List& known,
                     std::initializer_list<std::string_view> also_ignored) {
    const auto members = section.members();
    if (!members.ok()) return fields_.problem(members.error());
    for (const auto& [name, value] : *members) {
      if (contains(known, name))
        put(std::string(prefix) + std::string(name), value);
      else if (!contains(also_ignored, name) && !ignored(name))
        unknown(value, name);
    }
  }

  /// The newer Hugging Face form: {"main": {rope_theta, ...}, "compress": {rope_theta, rope_type: yarn,
  /// factor, ...}}.
  void rope_parameters(const JsonRef& section) {
    const auto parts = section.members();
    if (!parts.ok()) return fields_.problem(parts.error());
    for (const auto& [part, value] : *parts) {
      if (part != "main" && part != "compress") {
        unknown(value, part);
        continue;
      }
      const auto members = value.members();
      if (!members.ok()) return fields_.problem(members.error());
      for (const auto& [name, field] : *members) {
        if (name == "rope_theta") {
          put(part == "main" ? "rope_theta" : "compress_rope_theta", field);
        } else if (name == "attention_factor") {
          if (!(field.value() == Json(1.0)))
            fields_.problem(field.error("only an attention_factor of 1 is supported"));
        } else if (name == "partial_rotary_factor") {
          put("partial_rotary_factor", field);
        } else if (part == "main") {
          if (name != "rope_type" && name != "type")
            unknown(field, name);
          else if (!(field.value() == Json("default")))
            fields_.problem(field.error("expected \"default\""));
        } else if (contains(kYarn, name)) {
          put("yarn." + std::string(name), field);
        } else {
          unknown(field, name);
        }
      }
    }
  }

  static const Alias* find_alias(std::string_view name) {
    const auto* found = std::find_if(std::begin(kAliases), std::end(kAliases),
                                     [name](const Alias& a) { return a.spelling == name; });
    return found == std::end(kAliases) ? nullptr : found;
  }

  const Json& document_;
  ConfigFields fields_;
};

}  // namespace

const JsonRef* ConfigFields::find(std::string_view name) const {
  const auto found = values.find(name);
  return found == values.end() ? nullptr : &found->second;
}

ConfigFields collect_config_fields(const Json& document) {
  return Collector(document).run();
}

}  // namespace deepinfer
