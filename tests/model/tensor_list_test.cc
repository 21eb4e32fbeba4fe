#include "model/tensor_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "io/temp_folder.h"

namespace deepinfer {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

ModelConfig config_of(const std::string& path) {
  std::ifstream in(path);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  Result<ModelConfig> config = parse_config(text);
  EXPECT_TRUE(config.ok()) << path;
  return config.ok() ? *config : ModelConfig();
}

struct Totals {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
  std::map<DType, std::int64_t> values;  // packed FP4 counted as values; scales left out
};

Totals totals(const std::vector<ExpectedTensor>& list) {
  Totals t;
  for (const ExpectedTensor& e : list) {
    if (e.name == "image_pad") continue;
    ++t.tensors;
    t.bytes += e.bytes();
    if (!e.is_scale) t.values[e.dtypes.front()] += e.parameters();
  }
  return t;
}

const ExpectedTensor& named(const std::vector<ExpectedTensor>& list, std::string_view name) {
  for (const ExpectedTensor& e : list) {
    if (e.name == name) return e;
  }
  ADD_FAILURE() << "no tensor " << name;
  return list.front();
}

TEST(TensorList, BundledCheckpointsMatch) {
  for (const char* folder : {"models/demo-v41", "models/tiny-v4"}) {
    const auto checkpoint = Checkpoint::open(folder);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().to_string();
    const auto config = parse_config(checkpoint->config_text());
    ASSERT_TRUE(config.ok()) << config.error().to_string();
    const Status status = check_tensors(*checkpoint, expected_tensors(*config));
    EXPECT_TRUE(status.ok()) << status.error().to_string();
  }
}

// The published header dump of DeepSeek-V4.1-Flash: how many values are stored in each type, and the size of
// all tensors.
TEST(TensorList, V41FlashCountsEqualThePublishedHeaders) {
  const Totals t = totals(expected_tensors(config_of("tests/data/configs/v41-flash.json")));
  EXPECT_EQ(t.values.at(DType::kI8), 557'171'343'360);
  EXPECT_EQ(t.values.at(DType::kF8E4M3), 204'015'223'296);
  EXPECT_EQ(t.values.at(DType::kBF16), 1'976'441'856);
  EXPECT_EQ(t.values.at(DType::kF32), 42'307'282);
  EXPECT_EQ(t.tensors, 96'085);
}

void expect_tensor(const std::vector<ExpectedTensor>& list, std::string_view name, DType dtype,
                   const Shape& shape) {
  const ExpectedTensor& e = named(list, name);
  EXPECT_EQ(e.dtypes.front(), dtype) << name;
  EXPECT_EQ(e.shape, shape) << name;
}

TEST(TensorList, V41FlashShapes) {
  const auto list = expected_tensors(config_of("tests/data/configs/v41-flash.json"));
  expect_tensor(list, "layers.0.attn.wq_a.scale", DType::kF8E8M0, {40, 160});
  expect_tensor(list, "layers.39.attn.wo_a.weight", DType::kF8E4M3, {8192, 4096});
  expect_tensor(list, "layers.20.attn.compressor.wkv.weight", DType::kBF16, {512, 5120});
  expect_tensor(list, "layers.36.attn.indexer.wq_b.scale", DType::kF8E8M0, {128, 40});
  expect_tensor(list, "layers.7.ffn.experts.383.w2.weight", DType::kI8, {5120, 1152});
  expect_tensor(list, "layers.7.ffn.experts.383.w2.scale", DType::kF8E8M0, {5120, 72});
  expect_tensor(list, "layers.14.engram.embed.scale", DType::kF8E8M0, {384016682, 8});
  expect_tensor(list, "layers.1.engram.wkv.weight", DType::kF8E4M3, {25600, 6144});
  expect_tensor(list, "mtp.0.main_proj.scale", DType::kF8E8M0, {160, 480});
  expect_tensor(list, "mtp.2.confidence_head.proj.weight", DType::kBF16, {1, 5376});
  expect_tensor(list, "aligner.w1.weight", DType::kBF16, {5120, 9216});
  for (const ExpectedTensor& e : list) {
    EXPECT_NE(e.name, "layers.20.attn.compressor.wgate.weight") << "ratio 1 has no gate";
    EXPECT_NE(e.name, "layers.24.attn.indexer.wk.weight") << "a layer that reuses a pool has no keys";
  }
}

TEST(TensorList, V4Shapes) {
  const auto flash = expected_tensors(config_of("tests/data/configs/v4-flash.json"));
  expect_tensor(flash, "layers.0.attn.wq_a.scale", DType::kF8E8M0, {8, 32});
  expect_tensor(flash, "layers.0.attn.wo_a.scale", DType::kF8E8M0, {64, 32});
  expect_tensor(flash, "layers.2.attn.compressor.wkv.weight", DType::kBF16, {1024, 4096});
  expect_tensor(flash, "layers.3.attn.compressor.ape", DType::kF32, {128, 512});
  expect_tensor(flash, "layers.2.attn.indexer.compressor.ape", DType::kF32, {4, 256});
  expect_tensor(flash, "layers.2.attn.indexer.wq_b.weight", DType::kF8E4M3, {8192, 1024});
  expect_tensor(flash, "layers.2.ffn.gate.tid2eid", DType::kI64, {129280, 6});
  expect_tensor(flash, "layers.3.ffn.gate.bias", DType::kF32, {256});
  expect_tensor(flash, "layers.9.ffn.experts.5.w1.weight", DType::kI8, {2048, 2048});
  expect_tensor(flash, "layers.9.ffn.experts.5.w2.scale", DType::kF8E8M0, {4096, 64});
  expect_tensor(flash, "hc_head_fn", DType::kF32, {4, 16384});
  expect_tensor(flash, "mtp.0.e_proj.weight", DType::kF8E4M3, {4096, 4096});
  expect_tensor(flash, "mtp.0.hc_head_scale", DType::kF32, {1});

  const auto dspark = expected_tensors(config_of("tests/data/configs/v4-flash-dspark.json"));
  expect_tensor(dspark, "mtp.0.main_proj.weight", DType::kF8E4M3, {4096, 12288});
  expect_tensor(dspark, "mtp.2.markov_head.markov_w2.weight", DType::kBF16, {129280, 256});
  expect_tensor(dspark, "mtp.2.hc_head_fn", DType::kF32, {4, 16384});
  expect_tensor(dspark, "mtp.1.ffn.experts.255.w3.weight", DType::kI8, {2048, 2048});
  for (const ExpectedTensor& e : dspark) EXPECT_NE(e.name, "mtp.0.e_proj.weight");

  const auto base = expected_tensors(config_of("tests/data/configs/v4-flash-base.json"));
  expect_tensor(base, "layers.9.ffn.experts.5.w1.weight", DType::kF8E4M3, {2048, 4096});
  expect_tensor(base, "layers.9.ffn.experts.5.w1.scale", DType::kF8E8M0, {16, 32});
}

/// A copy of the tiny model that can be damaged tensor by tensor.
class DamagedCheckpoint : public ::testing::Test {
 protected:
  struct Tensor {
    DType dtype;
    Shape shape;
    std::vector<std::byte> bytes;
  };
  void load(const std::string& folder) {
    const auto source = Checkpoint::open(folder);
    ASSERT_TRUE(source.ok());
    config_text_ = source->config_text();
    for (const std::string_view name : source->names()) {
      const TensorView& t = *source->find(name);
      tensors_[std::string(name)] = {t.dtype, t.shape, {t.data.begin(), t.data.end()}};
    }
  }
  std::string check() {
    const TempFolder folder;
    folder.write("config.json", config_text_);
    SafetensorsWriter writer(folder.file("model.safetensors"));
    for (const auto& [name, t] : tensors_) EXPECT_TRUE(writer.declare(name, t.dtype, t.shape).ok());
    for (const auto& [name, t] : tensors_) EXPECT_TRUE(writer.append(t.bytes).ok());
    EXPECT_TRUE(writer.finish().ok());
    const auto checkpoint = Checkpoint::open(folder.path());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().to_string();
    const Status status = check_tensors(*checkpoint, expected_tensors(parse_config(config_text_).value()));
    return status.ok() ? "" : status.error().to_string();
  }
  std::string config_text_;
  std::map<std::string, Tensor> tensors_;
};

TEST_F(DamagedCheckpoint, EveryKindOfDamageIsListedAtOnce) {
  load("models/tiny-v4");
  EXPECT_EQ(check(), "");
  tensors_.erase("layers.3.attn.kv_norm.weight");
  tensors_["layers.0.ffn.gate.tid2eid"].dtype = DType::kF64;
  tensors_["norm.weight"].shape = {1, 128};
  tensors_["layers.9.attn.wkv.weight"] = tensors_["layers.1.attn.wkv.weight"];
  const std::string text = check();
  EXPECT_THAT(text, HasSubstr("missing tensor layers.3.attn.kv_norm.weight (BF16 or F32 [64])"));
  EXPECT_THAT(text, HasSubstr("tensor layers.0.ffn.gate.tid2eid has type F64, expected I64 or I32"));
  EXPECT_THAT(text, HasSubstr("tensor norm.weight has shape [1, 128], expected [128]"));
  EXPECT_THAT(text, HasSubstr("tensor layers.9.attn.wkv.weight does not belong to this model"));
}

TEST_F(DamagedCheckpoint, QuantisedWeightsNeedTheirScales) {
  load("models/demo-v41");
  EXPECT_EQ(check(), "");
  tensors_.erase("layers.4.attn.wq_b.scale");
  tensors_["layers.5.attn.wq_b.scale"].dtype = DType::kU8;  // scale bytes that would be read as numbers
  tensors_.erase("layers.0.ffn.experts.3.w2.scale");
  const std::string text = check();
  EXPECT_THAT(text, HasSubstr("missing tensor layers.4.attn.wq_b.scale: without it"));
  EXPECT_THAT(text, HasSubstr("missing tensor layers.0.ffn.experts.3.w2.scale: without it"));
  EXPECT_THAT(text, HasSubstr("tensor layers.5.attn.wq_b.scale has type U8, expected F8_E8M0"));
}

TEST_F(DamagedCheckpoint, PictureBiasOfDraftStagesMayBeAbsent) {
  load("models/demo-v41");
  for (const char* name : {"mtp.0.ffn.gate.bias_vl", "mtp.1.ffn.gate.bias_vl", "mtp.2.ffn.gate.bias_vl"})
    tensors_.erase(name);
  tensors_["image_pad"] = tensors_["image_end"];
  EXPECT_EQ(check(), "");
  tensors_.erase("layers.0.ffn.gate.bias_vl");
  EXPECT_THAT(check(), HasSubstr("missing tensor layers.0.ffn.gate.bias_vl"));
}

TEST_F(DamagedCheckpoint, LongListsAreCut) {
  load("models/tiny-v4");
  std::erase_if(tensors_, [](const auto& item) { return item.first.find(".experts.") != std::string::npos; });
  EXPECT_THAT(check(), HasSubstr("... and 134 more missing tensors"));
}

}  // namespace
}  // namespace deepinfer
