#include "model/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "io/temp_folder.h"
#include "model/tensor_list.h"
#include "tensor/float_formats.h"
#include "tensor/quantize.h"

namespace deepinfer {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

/// A weight of the converted copy as real numbers.
std::vector<float> decoded(const Checkpoint& c, const ExpectedTensor& t, const ModelConfig& config) {
  const TensorView& weight = *c.find(t.name);
  const TensorView& scale = *c.find(t.name.substr(0, t.name.size() - 6) + "scale");
  const std::int64_t rows = t.shape[0], cols = t.packed_fp4 ? 2 * t.shape[1] : t.shape[1];
  std::vector<float> out(static_cast<std::size_t>(rows * cols));
  const std::int64_t block = config.quantization.block;
  if (t.packed_fp4)
    fp4_dequantize_weight(weight.u8(), scale.u8(), rows, cols, out);
  else
    fp8_dequantize_weight(weight.u8(), scale.u8(), rows, cols, {block, block}, out);
  return out;
}

void check_copy(const ConvertOptions& options, std::size_t least_shards) {
  const TempFolder folder;
  const std::string to = folder.file("copy");
  const Status status = convert_checkpoint("models/tiny-v4", to, options);
  ASSERT_TRUE(status.ok()) << status.error().to_string();
  const Result<Checkpoint> opened = Checkpoint::open(to);
  ASSERT_TRUE(opened.ok()) << opened.error().to_string();
  const Checkpoint& copy = *opened;
  EXPECT_GE(copy.shards().size(), least_shards);
  const Result<ModelConfig> config = parse_config(copy.config_text());
  ASSERT_TRUE(config.ok()) << config.error().to_string();
  EXPECT_EQ(config->quantization.block, options.quantization.block);
  EXPECT_EQ(config->quantization.fp4_experts, options.quantization.fp4_experts);
  const auto expected = expected_tensors(*config);
  const Status tensors = check_tensors(copy, expected);
  ASSERT_TRUE(tensors.ok()) << tensors.error().to_string();

  const Result<Checkpoint> source = Checkpoint::open("models/tiny-v4");
  int quantised = 0;
  for (const ExpectedTensor& t : expected) {
    if (t.is_scale) continue;
    const bool plain = t.dtypes.front() != DType::kF8E4M3 && !t.packed_fp4;
    const TensorView& from = *source->find(t.name);
    if (plain) {
      const TensorView& have = *copy.find(t.name);
      EXPECT_EQ(have.dtype, from.dtype) << t.name;
      EXPECT_TRUE(std::equal(have.data.begin(), have.data.end(), from.data.begin(), from.data.end()))
          << t.name;
      continue;
    }
    ++quantised;
    const std::vector<float> want = to_f32(from).value();
    const std::vector<float> have = decoded(copy, t, *config);
    ASSERT_EQ(want.size(), have.size());
    float largest = 0;
    for (const float x : want) largest = std::max(largest, std::fabs(x));
    for (std::size_t i = 0; i < want.size(); ++i) {
      // Half a step: 2^-4 of the value for e4m3, 2^-2 for e2m1, or half the smallest step of the coarsest
      // tile.
      const double relative = t.packed_fp4 ? 0.25 : 0.0625;
      const double smallest =
          static_cast<double>(largest) * (t.packed_fp4 ? 0.25 / 3 : std::ldexp(1.0, -10) / 224);
      ASSERT_LE(std::fabs(static_cast<double>(want[i]) - static_cast<double>(have[i])),
                relative * std::fabs(static_cast<double>(want[i])) + smallest)
          << t.name << " " << i;
    }
  }
  EXPECT_GT(quantised, 100);
}

TEST(Convert, Fp8TilesAndFp4Experts) {
  check_copy({.quantization = {128, true}}, 1);
}
TEST(Convert, AllFp8InSmallTiles) {
  check_copy({.quantization = {32, false}}, 1);
}
TEST(Convert, ManyShards) {
  check_copy({.quantization = {128, true}, .shard_bytes = 100'000}, 5);
}

TEST(Convert, RefusesWhatItCannotDo) {
  const TempFolder folder;
  EXPECT_THAT(convert_checkpoint("models/demo-v41", folder.file("x"), {}).error().to_string(),
              HasSubstr("quantised already"));
  folder.write("something", "");
  EXPECT_THAT(convert_checkpoint("models/tiny-v4", folder.path(), {}).error().to_string(),
              HasSubstr("not an empty folder"));
  EXPECT_EQ(convert_checkpoint(folder.file("nowhere"), folder.file("y"), {}).error().code,
            ErrorCode::kNotFound);
}

}  // namespace
}  // namespace deepinfer
