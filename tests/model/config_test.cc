#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "io/json.h"

namespace deepinfer {
namespace {

using ::testing::HasSubstr;

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

ModelConfig config_of(const std::string& path) {
  Result<ModelConfig> config = parse_config(text_of(path));
  EXPECT_TRUE(config.ok()) << path << ": " << (config.ok() ? "" : config.error().to_string());
  return config.ok() ? *config : ModelConfig();
}

/// A config file with some fields replaced; a null removes the field. "a/b" addresses a member of a.
std::string edited(const std::string& path, const std::vector<std::pair<std::string, std::string>>& edits) {
  Json document = parse_json(text_of(path)).value();
  for (const auto& [place, value] : edits) {
    Json* at = &document;
    std::string key = place;
    if (const auto slash = place.find('/'); slash != std::string::npos) {
      for (JsonMember& member : document.as_object()) {
        if (member.first == place.substr(0, slash)) at = &member.second;
      }
      key = place.substr(slash + 1);
    }
    at->set(key, parse_json(value).value());
  }
  return to_json_text(document);
}

std::string error_of(const std::string& path, const std::vector<std::pair<std::string, std::string>>& edits) {
  const Result<ModelConfig> config = parse_config(edited(path, edits));
  EXPECT_FALSE(config.ok());
  return config.ok() ? "" : config.error().to_string();
}

const std::string kDemo = "models/demo-v41/config.json";
const std::string kTiny = "models/tiny-v4/config.json";

TEST(ModelConfig, V41FlashRoles) {
  const ModelConfig c = config_of("tests/data/configs/v41-flash.json");
  EXPECT_EQ(c.family, Family::kDeepseekV41);
  EXPECT_EQ(c.quantization.block, 32);
  EXPECT_TRUE(c.quantization.fp4_experts);
  EXPECT_EQ(c.norm_eps, 1e-20);
  ASSERT_TRUE(c.yarn);
  EXPECT_EQ(c.yarn->factor, 16);
  EXPECT_EQ(c.yarn->original_max_positions, 65536);
  ASSERT_EQ(c.plan.size(), 40u);
  const std::vector<std::int64_t> owners = {2, 8, 14, 20};
  const std::vector<std::int64_t> indexers = {2, 8, 14, 20, 24, 28, 32, 36};
  for (std::int64_t L = 0; L < 40; ++L) {
    const LayerPlan& p = c.plan[static_cast<std::size_t>(L)];
    EXPECT_EQ(p.ratio, L < 2 ? 0 : L < 20 ? 2 : 1) << L;
    EXPECT_EQ(p.owns_pool, std::count(owners.begin(), owners.end(), L) == 1) << L;
    EXPECT_EQ(p.runs_index, std::count(indexers.begin(), indexers.end(), L) == 1) << L;
    EXPECT_EQ(p.pool_layer, L < 2 ? -1 : L < 8 ? 2 : L < 14 ? 8 : L < 20 ? 14 : 20) << L;
    EXPECT_EQ(p.index_layer, L < 2 ? -1 : L < 8 ? 2 : L < 14 ? 8 : L < 20 ? 14 : L / 4 * 4) << L;
    EXPECT_EQ(p.builds_candidates, L == 20) << L;
    EXPECT_EQ(p.uses_candidates, L == 24 || L == 28 || L == 32 || L == 36) << L;
    EXPECT_EQ(p.engram, L == 1 ? 0 : L == 14 ? 1 : -1) << L;
    EXPECT_EQ(p.draft_tap, L >= 37) << L;
    EXPECT_FALSE(p.overlap || p.hash_routed) << L;
  }
  ASSERT_TRUE(c.engram);
  EXPECT_EQ(c.engram->table_rows, (std::vector<std::int64_t>{384006168, 384016682}));
  EXPECT_EQ(c.engram->compressed_vocab, 99092);
  EXPECT_TRUE(c.draft.dspark);
  EXPECT_EQ(c.draft.stages, 3);
  EXPECT_EQ(c.draft.experts, 128);
  EXPECT_EQ(c.draft.experts_per_token, 3);
  ASSERT_TRUE(c.vision);
  EXPECT_EQ(c.vision->min_pixels, 295936);
  EXPECT_FALSE(c.vision->max_wh_ratio);
  EXPECT_EQ(c.image_token, 129264);
}

// Every field but the spelling must come out equal: compared through the derived values that differ in type.
TEST(ModelConfig, ReferenceNamesGiveTheSameModel) {
  const ModelConfig a = config_of("tests/data/configs/v41-flash.json");
  const ModelConfig b = config_of("tests/data/configs/v41-flash-reference.json");
  EXPECT_EQ(a.family, b.family);
  const auto sizes = [](const ModelConfig& c) {
    return std::vector<double>{static_cast<double>(c.vocab_size),
                               static_cast<double>(c.hidden),
                               static_cast<double>(c.layers),
                               static_cast<double>(c.heads),
                               static_cast<double>(c.head_dim),
                               static_cast<double>(c.rope_dim),
                               static_cast<double>(c.q_rank),
                               static_cast<double>(c.o_groups),
                               static_cast<double>(c.o_rank),
                               static_cast<double>(c.experts),
                               static_cast<double>(c.experts_per_token),
                               static_cast<double>(c.expert_inner),
                               c.routed_scale,
                               c.gate_temperature,
                               c.swiglu_limit,
                               c.norm_eps,
                               c.rope_theta,
                               c.compress_rope_theta,
                               c.yarn->factor,
                               c.yarn->beta_fast,
                               c.yarn->beta_slow,
                               static_cast<double>(c.yarn->original_max_positions),
                               static_cast<double>(c.window),
                               static_cast<double>(c.index_heads),
                               static_cast<double>(c.index_head_dim),
                               static_cast<double>(c.index_top_k),
                               static_cast<double>(c.candidate_blocks),
                               static_cast<double>(c.candidate_block),
                               static_cast<double>(c.streams),
                               static_cast<double>(c.sinkhorn_iterations),
                               c.hyper_eps,
                               static_cast<double>(c.quantization.block),
                               static_cast<double>(c.quantization.fp4_experts),
                               static_cast<double>(c.engram->pad_token),
                               static_cast<double>(c.engram->vocab_start),
                               static_cast<double>(c.draft.stages),
                               static_cast<double>(c.draft.block_size),
                               static_cast<double>(c.draft.noise_token),
                               static_cast<double>(c.draft.experts),
                               static_cast<double>(c.draft.experts_per_token),
                               static_cast<double>(c.draft.markov_rank),
                               static_cast<double>(c.vision->layers),
                               static_cast<double>(c.vision->inner),
                               static_cast<double>(c.vision->max_image_tokens),
                               static_cast<double>(c.vision->min_pixels),
                               static_cast<double>(c.image_token)};
  };
  EXPECT_EQ(sizes(a), sizes(b));
  EXPECT_EQ(a.draft.target_layers, b.draft.target_layers);
  for (std::size_t L = 0; L < a.plan.size(); ++L) {
    EXPECT_EQ(a.plan[L].pool_layer, b.plan[L].pool_layer);
    EXPECT_EQ(a.plan[L].index_layer, b.plan[L].index_layer);
  }
}

TEST(ModelConfig, V4FlashAndProRoles) {
  const ModelConfig c = config_of("tests/data/configs/v4-flash.json");
  EXPECT_EQ(c.family, Family::kDeepseekV4);
  EXPECT_EQ(c.quantization.block, 128);
  EXPECT_TRUE(c.quantization.fp4_experts);
  EXPECT_EQ(c.draft.stages, 1);
  EXPECT_FALSE(c.draft.dspark);
  for (std::int64_t L = 0; L < 43; ++L) {
    const LayerPlan& p = c.plan[static_cast<std::size_t>(L)];
    const std::int64_t ratio = L < 2 ? 0 : L % 2 == 0 ? 4 : 128;
    EXPECT_EQ(p.ratio, ratio) << L;
    EXPECT_EQ(p.owns_pool, ratio > 0);
    EXPECT_EQ(p.pool_layer, ratio > 0 ? L : -1);
    EXPECT_EQ(p.runs_index, ratio == 4);
    EXPECT_EQ(p.overlap, ratio == 4);
    EXPECT_EQ(p.index_layer, ratio == 4 ? L : -1);
    EXPECT_EQ(p.hash_routed, L < 3);
    EXPECT_EQ(p.engram, -1);
  }
  const ModelConfig pro = config_of("tests/data/configs/v4-pro.json");
  EXPECT_EQ(pro.plan[0].ratio, 128);
  EXPECT_EQ(pro.index_top_k, 1024);
  EXPECT_EQ(pro.routed_scale, 2.5);
  const ModelConfig base = config_of("tests/data/configs/v4-flash-base.json");
  EXPECT_FALSE(base.quantization.fp4_experts);
  EXPECT_EQ(base.quantization.block, 128);
  const ModelConfig dspark = config_of("tests/data/configs/v4-flash-dspark.json");
  EXPECT_TRUE(dspark.draft.dspark);
  EXPECT_EQ(dspark.draft.stages, 3) << "one stage a target layer although num_nextn_predict_layers says 1";
  EXPECT_EQ(dspark.draft.experts, 256);
  EXPECT_TRUE(dspark.plan[42].draft_tap);
}

TEST(ModelConfig, BundledModels) {
  const ModelConfig demo = config_of(kDemo);
  EXPECT_EQ(demo.plan[9].index_layer, 8);
  EXPECT_EQ(demo.plan[9].pool_layer, 6);
  EXPECT_EQ(demo.vision->layers, 4);
  const ModelConfig tiny = config_of(kTiny);
  EXPECT_EQ(tiny.quantization.block, 0);
  EXPECT_FALSE(tiny.quantization.fp4_experts);
  EXPECT_EQ(tiny.draft.stages, 0);
}

TEST(ModelConfig, TokensAreReadInBothPlaces) {
  std::string text = edited(kDemo, {{"bos_token_id", "null"}, {"text_config/bos_token_id", "7"}});
  EXPECT_EQ(parse_config(text)->bos, 7);
  text = edited(kDemo, {{"text_config/eos_token_id", "1"}});
  EXPECT_EQ(parse_config(text)->eos, 1);
  EXPECT_THAT(error_of(kDemo, {{"text_config/eos_token_id", "3"}}), HasSubstr("contradicts"));
}

TEST(ModelConfig, NewerHuggingFaceSpellings) {
  const std::string text = edited(
      kTiny,
      {{"compress_ratios", "null"},
       {"num_hash_layers", "null"},
       {"rope_theta", "null"},
       {"compress_rope_theta", "null"},
       {"rope_scaling", "null"},
       {"layer_types",
        R"(["sliding_attention","sliding_attention","compressed_sparse_attention","heavily_compressed_attention","compressed_sparse_attention","heavily_compressed_attention"])"},
       {"mlp_layer_types", R"(["hash_moe","hash_moe","moe","moe","moe","moe"])"},
       {"rope_parameters",
        R"({"main":{"rope_type":"default","rope_theta":10000},"compress":{"rope_type":"yarn","rope_theta":160000,"factor":16,"beta_fast":32,"beta_slow":1,"original_max_position_embeddings":65536,"attention_factor":1.0}})"}});
  const Result<ModelConfig> c = parse_config(text);
  ASSERT_TRUE(c.ok()) << c.error().to_string();
  const ModelConfig tiny = config_of(kTiny);
  EXPECT_EQ(c->hash_layers, tiny.hash_layers);
  EXPECT_EQ(c->compress_rope_theta, tiny.compress_rope_theta);
  EXPECT_EQ(c->yarn->factor, tiny.yarn->factor);
  for (std::size_t L = 0; L < 6; ++L) EXPECT_EQ(c->plan[L].ratio, tiny.plan[L].ratio);
}

TEST(ModelConfig, UnknownFamiliesAndFieldsAreRefusedByName) {
  EXPECT_THAT(error_of(kDemo, {{"model_type", "\"deepseek_v3\""}}),
              HasSubstr("unknown model_type \"deepseek_v3\""));
  EXPECT_THAT(error_of(kTiny, {{"model_type", "null"}}), HasSubstr("\"model_type\" is missing"));
  EXPECT_THAT(error_of(kDemo, {{"text_config/attn_logit_softcap", "30"}}),
              HasSubstr("/text_config/attn_logit_softcap: the field \"attn_logit_softcap\" is not known"));
  EXPECT_THAT(error_of(kDemo, {{"vision_config/window", "1"}}), HasSubstr("/vision_config/window"));
  EXPECT_THAT(error_of(kDemo, {{"quantization_config/group_size", "64"}}), HasSubstr("group_size"));
  EXPECT_THAT(error_of(kTiny, {{"rope_scaling/mscale", "0.7"}}), HasSubstr("/rope_scaling/mscale"));
  EXPECT_THAT(error_of(kTiny, {{"engram_layer_ids", "[1]"}}),
              HasSubstr("\"engram_layer_ids\" does not belong to a deepseek_v4 model"));
  EXPECT_TRUE(parse_config(edited(kTiny, {{"_name_or_path", "\"x\""}, {"ep_size", "8"}})).ok());
}

TEST(ModelConfig, ValuesThatWouldChangeTheMathsAreRefused) {
  const std::pair<const char*, const char*> cases[] = {{"scoring_func", "\"sigmoid\""},
                                                       {"topk_method", "\"greedy\""},
                                                       {"norm_topk_prob", "false"},
                                                       {"hidden_act", "\"gelu\""},
                                                       {"attention_bias", "true"},
                                                       {"tie_word_embeddings", "true"},
                                                       {"num_key_value_heads", "4"},
                                                       {"n_group", "8"},
                                                       {"first_k_dense_replace", "1"},
                                                       {"n_shared_experts", "2"},
                                                       {"hc_mult", "2"}};
  for (const auto& [field, value] : cases) {
    EXPECT_THAT(error_of(kTiny, {{field, value}}), HasSubstr(std::string("/") + field)) << field;
    EXPECT_THAT(error_of(kDemo, {{std::string("text_config/") + field, value}}), HasSubstr(field)) << field;
  }
  EXPECT_THAT(
      error_of(kTiny, {{"rope_scaling/type", "\"linear\""}, {"rope_scaling/rope_type", "\"linear\""}}),
      HasSubstr("only \"yarn\""));
  EXPECT_THAT(error_of(kDemo, {{"quantization_config/scale_fmt", "\"float32\""}}), HasSubstr("scale_fmt"));
  EXPECT_THAT(error_of(kDemo, {{"quantization_config/weight_block_size", "[64,64]"}}),
              HasSubstr("only [32, 32] and [128, 128]"));
  EXPECT_THAT(error_of(kTiny, {{"expert_dtype", "\"fp4\""}}),
              HasSubstr("without an FP8 quantization_config"));
}

TEST(ModelConfig, EveryMissingOrBrokenSizeIsNamedInOneError) {
  const std::string text = error_of(kTiny, {{"hidden_size", "null"},
                                            {"head_dim", "\"64\""},
                                            {"vocab_size", "-1"},
                                            {"hc_mult", "1e30"},
                                            {"rope_theta", "0"}});
  EXPECT_THAT(text, HasSubstr("\"hidden_size\" is missing"));
  EXPECT_THAT(text, HasSubstr("/head_dim: expected an integer, found \"64\""));
  EXPECT_THAT(text, HasSubstr("/vocab_size: -1 is outside"));
  EXPECT_THAT(text, HasSubstr("/hc_mult: expected an integer"));
  EXPECT_THAT(text, HasSubstr("/rope_theta: 0 is outside"));
}

TEST(ModelConfig, RequiredFieldsCannotBeLeftOut) {
  for (const char* field : {"vocab_size",
                            "hidden_size",
                            "num_hidden_layers",
                            "num_attention_heads",
                            "head_dim",
                            "qk_rope_head_dim",
                            "q_lora_rank",
                            "o_groups",
                            "o_lora_rank",
                            "n_routed_experts",
                            "num_experts_per_tok",
                            "moe_intermediate_size",
                            "routed_scaling_factor",
                            "swiglu_limit",
                            "rms_norm_eps",
                            "rope_theta",
                            "compress_rope_theta",
                            "sliding_window",
                            "index_n_heads",
                            "index_head_dim",
                            "index_topk",
                            "hc_mult",
                            "hc_sinkhorn_iters",
                            "hc_eps",
                            "compress_ratios"})
    EXPECT_THAT(error_of(kTiny, {{field, "null"}}), HasSubstr(field)) << field;
}

TEST(ModelConfig, InconsistentPlansAreRefused) {
  EXPECT_THAT(error_of(kTiny, {{"compress_ratios", "[]"}}), HasSubstr("0 entries for 6 layers"));
  EXPECT_THAT(error_of(kTiny, {{"compress_ratios", "[0,0,4]"}}), HasSubstr("3 entries for 6 layers"));
  EXPECT_THAT(error_of(kTiny, {{"compress_ratios", "[0,0,4,128,4,2]"}}),
              HasSubstr("2 is not a ratio of deepseek_v4"));
  EXPECT_THAT(error_of(kTiny, {{"compress_ratios", "[0,0,4,128,4,128,4]"}}),
              HasSubstr("for draft stages, must be 0"));
  EXPECT_THAT(error_of(kDemo, {{"text_config/kv_source_layer_ids", "[4,6]"}}),
              HasSubstr("layer 2 reads a compressed cache"));
  EXPECT_THAT(error_of(kDemo, {{"text_config/kv_source_layer_ids", "[2,4]"}}),
              HasSubstr("layer 6 has compress_ratio 1, but the cache it reads, of layer 4, has 2"));
  EXPECT_THAT(error_of(kDemo, {{"text_config/kv_source_layer_ids", "[1,2,4,6]"}}),
              HasSubstr("names layer 1, whose compress_ratio is 0"));
  EXPECT_THAT(error_of(kDemo, {{"text_config/index_source_layer_ids", "[2,6,8]"}}),
              HasSubstr("layer 4 has no selection"));
  EXPECT_THAT(error_of(kDemo, {{"text_config/index_source_layer_ids", "[2,4,6,6]"}}),
              HasSubstr("not ascending"));
  EXPECT_THAT(error_of(kDemo, {{"text_config/index_source_layer_ids", "[2,4,6,12]"}}),
              HasSubstr("12 is outside 0..9"));
  EXPECT_THAT(error_of(kDemo, {{"text_config/candidate_source_layer_id", "7"}}),
              HasSubstr("not one of index_source_layer_ids"));
  EXPECT_THAT(error_of(kDemo, {{"text_config/candidate_source_layer_id", "4"}}),
              HasSubstr("candidates of another cache"));
  EXPECT_THAT(error_of(kDemo, {{"text_config/candidate_topk_blocks", "2"}}),
              HasSubstr("smaller than index_topk"));
  EXPECT_THAT(error_of(kDemo, {{"text_config/engram_num_embeddings", "[5]"}}), HasSubstr("differ in length"));
  EXPECT_THAT(error_of(kDemo, {{"text_config/o_groups", "3"}}), HasSubstr("not a multiple of o_groups"));
  EXPECT_THAT(error_of(kDemo, {{"text_config/qk_rope_head_dim", "15"}}), HasSubstr("odd"));
  EXPECT_THAT(error_of(kDemo, {{"text_config/qk_rope_head_dim", "128"}}), HasSubstr("larger than head_dim"));
  EXPECT_THAT(error_of(kDemo, {{"text_config/num_experts_per_tok", "25"}}),
              HasSubstr("larger than n_routed_experts"));
  EXPECT_THAT(error_of(kDemo, {{"text_config/moe_intermediate_size", "90"}}), HasSubstr("multiples of 32"));
  EXPECT_THAT(error_of(kDemo, {{"image_token_id", "null"}}), HasSubstr("needs image_token_id"));
}

TEST(ModelConfig, TextThatIsNoConfiguration) {
  EXPECT_THAT(parse_config("").error().to_string(), HasSubstr("config.json: not valid JSON"));
  EXPECT_THAT(parse_config("[1]").error().to_string(), HasSubstr("expected an object"));
  EXPECT_THAT(parse_config("{}").error().to_string(), HasSubstr("model_type"));
  EXPECT_THAT(parse_config(R"({"model_type":"deepseek_v41","text_config":[]})").error().to_string(),
              HasSubstr("/text_config: expected an object"));
  const std::string demo = text_of(kDemo);
  for (std::size_t cut = 0; cut < demo.size() - 1; cut += 7)
    EXPECT_FALSE(parse_config(demo.substr(0, cut)).ok()) << cut;
}

}  // namespace
}  // namespace deepinfer
