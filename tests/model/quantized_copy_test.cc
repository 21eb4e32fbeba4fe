// Every tensor of a quantised copy: right type, right shape, half a step from its source at most.
#include <gtest/gtest.h>

#include <cmath>

#include "io/temp_folder.h"
#include "model/convert/quantize_checkpoint.h"
#include "model/tensor_list.h"
#include "tensor/float_formats.h"
#include "tensor/quantize.h"

namespace deepinfer {
namespace {

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

void check_copy(const QuantizeOptions& options, std::int64_t block, std::size_t least_shards) {
  const TempFolder folder;
  const std::string to = folder.file("copy");
  const Result<WrittenCheckpoint> status = quantize_checkpoint("models/tiny-v4", to, options);
  ASSERT_TRUE(status.ok()) << status.error().to_string();
  const Result<Checkpoint> opened = Checkpoint::open(to);
  ASSERT_TRUE(opened.ok()) << opened.error().to_string();
  const Checkpoint& copy = *opened;
  EXPECT_GE(copy.shards().size(), least_shards);
  const Result<ModelConfig> config = parse_config(copy.config_text());
  ASSERT_TRUE(config.ok()) << config.error().to_string();
  EXPECT_EQ(config->quantization.block, block);
  EXPECT_EQ(config->quantization.fp4_experts, options.fp4_experts);
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

TEST(QuantizedCopy, Fp8TilesAndFp4Experts) {
  check_copy({}, 128, 1);
}
TEST(QuantizedCopy, AllFp8InSmallTiles) {
  check_copy({.block = 32, .fp4_experts = false}, 32, 1);
}
TEST(QuantizedCopy, ManyShards) {
  check_copy({.max_shard_bytes = 100'000}, 128, 5);
}

}  // namespace
}  // namespace deepinfer
