#include "model/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace deepinfer {
namespace {

using ::testing::HasSubstr;

ModelConfig config_of(const std::string& path) {
  std::ifstream in(path);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  Result<ModelConfig> config = parse_config(text);
  EXPECT_TRUE(config.ok()) << path;
  return config.ok() ? *config : ModelConfig();
}

double gib(std::int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

// Published figures of the real models, from their configurations alone.
TEST(Report, V4FlashFigures) {
  const ModelReport r = describe_model(config_of("tests/data/configs/v4-flash.json"));
  EXPECT_EQ(count_text(static_cast<double>(r.backbone_parameters)), "284.3 B");
  EXPECT_EQ(count_text(static_cast<double>(r.active_parameters)), "13.3 B");
  EXPECT_NEAR(gib(r.bytes), 148.6, 0.1);
  EXPECT_EQ(std::floor(r.history_bytes_per_token), 3514);
}

TEST(Report, V41FlashFigures) {
  const ModelReport r = describe_model(config_of("tests/data/configs/v41-flash.json"));
  EXPECT_NEAR(static_cast<double>(r.backbone_parameters) / 1e9, 552, 0.5);
  EXPECT_NEAR(static_cast<double>(r.engram_parameters) / 1e9, 196, 1);
  EXPECT_NEAR(static_cast<double>(r.active_parameters) / 1e9, 16, 0.5);
  EXPECT_EQ(r.bytes, 510'286'023'000) << "total_size of the published index";
  EXPECT_NEAR(gib(r.bytes), 475.3, 0.1);
  EXPECT_EQ(r.history_bytes_per_token, 890);
}

TEST(Report, V4ProIsAboutOnePointSixTrillion) {
  const ModelReport r = describe_model(config_of("tests/data/configs/v4-pro.json"));
  EXPECT_NEAR(static_cast<double>(r.backbone_parameters) / 1e12, 1.6, 0.05);
  EXPECT_NEAR(static_cast<double>(r.active_parameters) / 1e9, 49, 1);
}

TEST(Report, TotalsAreTheSumOfTheKinds) {
  for (const char* path : {"models/demo-v41/config.json", "models/tiny-v4/config.json",
                           "tests/data/configs/v4-flash-base.json"}) {
    const ModelReport r = describe_model(config_of(path));
    std::int64_t parameters = 0, bytes = 0;
    for (const KindTotals& t : r.kinds) {
      parameters += t.parameters;
      bytes += t.bytes;
    }
    EXPECT_EQ(parameters, r.parameters);
    EXPECT_EQ(bytes, r.bytes);
    EXPECT_EQ(r.backbone_parameters + r.engram_parameters + r.draft_parameters + r.vision_parameters,
              r.parameters);
  }
}

TEST(Report, DemoBytesAreThoseOfItsFiles) {
  const auto checkpoint = Checkpoint::open("models/demo-v41");
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ(describe_model(config_of("models/demo-v41/config.json")).bytes,
            static_cast<std::int64_t>(checkpoint->tensor_bytes()));
}

TEST(Plan, AddsUpAndFollowsTheRequest) {
  const ModelConfig config = config_of("tests/data/configs/v41-flash.json");
  PlanRequest request;
  request.context = 1 << 20;
  const MemoryPlan one = plan_memory(config, request).value();
  EXPECT_EQ(one.total_bytes, one.weight_bytes + one.history_bytes + one.sequence_bytes + one.workspace_bytes);
  EXPECT_EQ(one.history_bytes, 890ll << 20);
  EXPECT_NEAR(gib(one.mapped_bytes), 188.8, 0.2) << "two Engram tables of 264 bytes a row";
  EXPECT_NEAR(gib(one.weight_bytes), 475.24 - 188.83 - 7.39 - 0.90, 0.1);

  request.sequences = 4;
  const MemoryPlan four = plan_memory(config, request).value();
  EXPECT_EQ(four.history_bytes, 4 * one.history_bytes);
  EXPECT_EQ(four.sequence_bytes, 4 * one.sequence_bytes);
  EXPECT_EQ(four.weight_bytes, one.weight_bytes);

  request.draft = true;
  EXPECT_NEAR(gib(plan_memory(config, request)->weight_bytes - one.weight_bytes), 7.39, 0.01);
}

TEST(Plan, LargestContextAndBatchAreExactlyTheBorder) {
  const ModelConfig config = config_of("models/demo-v41/config.json");
  PlanRequest request;
  request.context = 4096;
  request.sequences = 3;
  request.memory_bytes = std::int64_t{200} << 20;
  const MemoryPlan plan = plan_memory(config, request).value();
  ASSERT_TRUE(plan.fits);
  ASSERT_LT(plan.largest_context, config.max_positions);
  PlanRequest larger = request;
  larger.context = plan.largest_context;
  EXPECT_TRUE(plan_memory(config, larger)->fits);
  larger.context = plan.largest_context + 1;
  EXPECT_FALSE(plan_memory(config, larger)->fits);
  PlanRequest more = request;
  more.sequences = plan.largest_sequences;
  EXPECT_TRUE(plan_memory(config, more)->fits);
  more.sequences = plan.largest_sequences + 1;
  EXPECT_FALSE(plan_memory(config, more)->fits);
}

TEST(Plan, TooLittleMemoryIsSaidPlainly) {
  const ModelConfig config = config_of("tests/data/configs/v4-flash.json");
  PlanRequest request;
  request.memory_bytes = std::int64_t{64} << 30;
  const MemoryPlan plan = plan_memory(config, request).value();
  EXPECT_FALSE(plan.fits);
  EXPECT_EQ(plan.largest_context, 0);
  EXPECT_EQ(plan.largest_sequences, 0);
  EXPECT_THAT(plan_text(config, plan), HasSubstr("The weights and the workspace alone need more than that."));
  EXPECT_EQ(plan_json(plan).find("fits")->as_bool(), false);
}

TEST(Plan, RequestsOutsideTheModelAreRefused) {
  const ModelConfig config = config_of("models/demo-v41/config.json");
  PlanRequest request;
  request.context = config.max_positions + 1;
  EXPECT_THAT(plan_memory(config, request).error().to_string(), HasSubstr("the model's limit"));
  request.context = 100;
  request.sequences = 0;
  EXPECT_FALSE(plan_memory(config, request).ok());
  request.sequences = std::int64_t{1} << 60;
  EXPECT_FALSE(plan_memory(config, request).ok());
}

TEST(Report, TextAndJsonSayTheSame) {
  const ModelConfig config = config_of("tests/data/configs/v41-flash.json");
  const ModelReport r = describe_model(config);
  const std::string text = report_text(config, r);
  EXPECT_THAT(text, HasSubstr("475.24 GiB"));
  EXPECT_THAT(text, HasSubstr("890 bytes a token"));
  EXPECT_THAT(text, HasSubstr("2 x window, 18 x 1:2, 20 x 1:1"));
  const Json json = report_json(config, r);
  EXPECT_EQ(json.find("bytes")->as_int(), r.bytes);
  EXPECT_EQ(json.find("kinds")->as_array().size(), r.kinds.size());
  EXPECT_EQ(size_text(890), "890 bytes");
  EXPECT_EQ(size_text(1536), "1.50 KiB");
}

}  // namespace
}  // namespace deepinfer
