// Converted checkpoints run: a quantised copy stays near its source, quantising what was dequantised changes
// no bit, and random checkpoints are deterministic, unkind and still give ordinary logits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "io/temp_folder.h"
#include "model/convert/quantize_checkpoint.h"
#include "model/convert/random_checkpoint.h"
#include "model/convert/random_values.h"
#include "model/engram_hash.h"
#include "model/open_model.h"
#include "model/tensor_list.h"
#include "support/golden.h"
#include "tensor/float_formats.h"
#include "tensor/quantize.h"

namespace deepinfer {
namespace {

using ::testing::HasSubstr;
using testing::read_file;
using testing::Runner;
using testing::TempFolder;

std::string text_of(const std::string& path) {
  return read_file(path);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  DI_CHECK(at != std::string::npos, "no ", from);
  return text.replace(at, from.size(), to);
}

std::vector<TokenId> some_tokens(std::int64_t count, std::int64_t vocab) {
  RandomBits bits(5, "tokens");
  std::vector<TokenId> out;
  for (std::int64_t i = 0; i < count; ++i)
    out.push_back(static_cast<TokenId>(bits.below(static_cast<std::uint64_t>(vocab))));
  return out;
}

std::vector<float> run(const std::string& folder, const std::vector<TokenId>& tokens,
                       const Numerics& numerics, KernelChoice kernels = KernelChoice::kFast,
                       std::int64_t chunk = 256) {
  const std::unique_ptr<Decoder> model = testing::open_or_die(
      folder, {.numerics = numerics, .kernels = kernels, .block_count = 4, .slot_count = 1, .threads = 1});
  Runner runner(*model, 0, 0, 1024);
  return runner.append(tokens, chunk);
}

struct Distance {
  double mean = 0, max = 0, kl = 0, argmax = 0;
};

// Of distribution b from distribution a, per position.
Distance distance(const std::vector<float>& a, const std::vector<float>& b, std::size_t vocab) {
  Distance d;
  const std::size_t rows = a.size() / vocab;
  for (std::size_t t = 0; t < rows; ++t) {
    const float* x = a.data() + t * vocab;
    const float* y = b.data() + t * vocab;
    double zx = 0, zy = 0;
    for (std::size_t i = 0; i < vocab; ++i) zx += std::exp(x[i]), zy += std::exp(y[i]);
    for (std::size_t i = 0; i < vocab; ++i) {
      const double delta = std::abs(x[i] - y[i]);
      d.max = std::max(d.max, delta);
      d.mean += delta / static_cast<double>(a.size());
      d.kl += std::exp(x[i]) / zx * (x[i] - std::log(zx) - y[i] + std::log(zy)) / static_cast<double>(rows);
    }
    d.argmax += std::max_element(x, x + vocab) - x == std::max_element(y, y + vocab) - y
                    ? 1.0 / static_cast<double>(rows)
                    : 0;
  }
  return d;
}

TEST(Quantize, TinyV4StaysNearItsSource) {
  const TempFolder target;
  const testing::Golden golden("tests/golden/v4-tiny/golden_v4.safetensors");
  const std::vector<TokenId> prompt = testing::to_tokens(golden.ints("prompt_ids"));
  const std::vector<float> source = run("models/tiny-v4", prompt, Numerics::reference(false));
  struct Bound {
    const char* name;
    bool fp4;
    Numerics numerics;
    double mean, kl, argmax;
  };
  // The source is untrained, so a rounding that turns a router or a selection moves much; its logits have a
  // standard deviation of 2. The distances are stated in docs/convert.md; a float64 computation with the same
  // quantised weights is 0.26 (FP8) and 0.60 (FP4) from the source.
  for (const Bound& b :
       {Bound{"FP8 experts, fp32 activations", false, Numerics::reference(false), 0.32, 0.10, 0.70},
        Bound{"FP4 experts, fp32 activations", true, Numerics::reference(false), 0.70, 0.37, 0.42},
        Bound{"FP4 experts, official", true, Numerics::official(), 0.72, 0.40, 0.42}}) {
    const std::string folder = target.file(b.name);
    const Result<WrittenCheckpoint> written =
        quantize_checkpoint("models/tiny-v4", folder, {.fp4_experts = b.fp4});
    ASSERT_TRUE(written.ok()) << written.error().to_string();
    const Distance d = distance(source, run(folder, prompt, b.numerics), 1024);
    std::printf("%s: mean |dlogit| %.3f, max %.2f, KL %.4f, argmax %.1f %%\n", b.name, d.mean, d.max, d.kl,
                100 * d.argmax);
    EXPECT_LE(d.mean, b.mean) << b.name;
    EXPECT_LE(d.kl, b.kl) << b.name;
    EXPECT_GE(d.argmax, b.argmax) << b.name;
  }
}

TEST(Quantize, QuantisedCopyGivesTheSameBitsHoweverItIsRun) {
  const TempFolder target;
  const std::string folder = target.file("q");
  ASSERT_TRUE(quantize_checkpoint("models/tiny-v4", folder, {}).ok());
  const std::vector<TokenId> prompt = some_tokens(280, 1024);
  const std::vector<float> whole = run(folder, prompt, Numerics::official(), KernelChoice::kFast, 280);
  EXPECT_EQ(run(folder, prompt, Numerics::official(), KernelChoice::kFast, 33), whole);
  EXPECT_EQ(run(folder, prompt, Numerics::official(), KernelChoice::kReference, 280), whole);
}

// Writes the bundled model with every quantised weight as plain fp32 or bf16.
void write_dequantised(const std::string& target) {
  const Result<Checkpoint> checkpoint = Checkpoint::open("models/demo-v41");
  ASSERT_TRUE(checkpoint.ok());
  std::vector<TensorSource> sources;
  for (const std::string_view name : checkpoint->names()) {
    const TensorView* t = checkpoint->find(name);
    if (name.ends_with(".scale")) continue;
    const TensorView* scale = checkpoint->find(std::string(name.substr(0, name.size() - 7)) + ".scale");
    if (!name.ends_with(".weight") || scale == nullptr) {
      sources.push_back(
          {std::string(name), t->dtype, t->shape, [t](SafetensorsWriter& w) { return w.append(t->data); }});
      continue;
    }
    const bool fp4 = t->dtype == DType::kI8;
    const Shape shape = {t->shape[0], t->shape[1] * (fp4 ? 2 : 1)};
    const bool table = name.find("engram.embed") != std::string_view::npos;
    const DType plain = sources.size() % 2 == 0 ? DType::kF32 : DType::kBF16;  // both hold the values exactly
    sources.push_back({std::string(name), plain, shape, [=](SafetensorsWriter& w) {
                         std::vector<float> values(static_cast<std::size_t>(shape[0] * shape[1]));
                         if (fp4)
                           fp4_dequantize_weight(t->u8(), scale->u8(), shape[0], shape[1], values);
                         else
                           fp8_dequantize_weight(t->u8(), scale->u8(), shape[0], shape[1],
                                                 table ? TileShape{1, 32} : TileShape{32, 32}, values);
                         if (plain == DType::kF32) return w.append_values<float>(values);
                         std::vector<std::uint16_t> bits;
                         for (const float v : values) bits.push_back(f32_to_bf16(v));
                         return w.append_values<std::uint16_t>(bits);
                       }});
  }
  const std::string config = replaced(checkpoint->config_text(), "\"quantization_config\"", "\"unused\"");
  const std::size_t begin = config.find("\"unused\""), end = config.find("\"text_config\"");
  ASSERT_TRUE(prepare_checkpoint_folder(target).ok());
  const Result<WrittenCheckpoint> written =
      write_checkpoint(target, sources, config.substr(0, begin) + config.substr(end), std::int64_t{16} << 20);
  ASSERT_TRUE(written.ok()) << written.error().to_string();
  EXPECT_GT(written->shards, 1);
  std::filesystem::copy_file("models/demo-v41/tokenizer.json", target + "/tokenizer.json");
}

TEST(Quantize, QuantisingWhatWasDequantisedChangesNoLogit) {
  const TempFolder folder;
  write_dequantised(folder.file("plain"));
  const Result<std::unique_ptr<Decoder>> plain = open_model(folder.file("plain"), {});
  ASSERT_FALSE(plain.ok());
  EXPECT_THAT(plain.error().to_string(), HasSubstr("convert --quantize"));

  const Result<WrittenCheckpoint> written = quantize_checkpoint(folder.file("plain"), folder.file("q"), {});
  ASSERT_TRUE(written.ok()) << written.error().to_string();
  const std::vector<TokenId> prompt = some_tokens(150, 8192);
  EXPECT_EQ(run(folder.file("q"), prompt, Numerics::official()),
            run("models/demo-v41", prompt, Numerics::official()));
}

TEST(Quantize, RefusesWhatItCannotDo) {
  const TempFolder folder;
  const auto error_of = [&](const std::string& source, const std::string& target) {
    const Result<WrittenCheckpoint> r = quantize_checkpoint(source, target, {});
    return r.ok() ? std::string("no error") : r.error().to_string();
  };
  EXPECT_THAT(error_of("models/demo-v41", folder.file("a")), HasSubstr("quantised already"));
  folder.write("file", "x");
  EXPECT_THAT(error_of("models/tiny-v4", folder.path()), HasSubstr("not empty"));
  EXPECT_THAT(error_of("models/absent", folder.file("b")), HasSubstr("models/absent"));
  EXPECT_FALSE(std::filesystem::exists(folder.file("b")));

  // A weight that is not finite is named, and no config.json makes the half-written folder look whole.
  const std::string broken = folder.file("broken");
  std::filesystem::copy("models/tiny-v4", broken);
  const std::string shard = broken + "/model-00001-of-00001.safetensors";
  std::string bytes = read_file(shard);
  const Result<Checkpoint> checkpoint = Checkpoint::open(broken);
  ASSERT_TRUE(checkpoint.ok());
  const std::byte* file = checkpoint->shards()[0].file().bytes().data();
  const std::size_t at =
      static_cast<std::size_t>(checkpoint->find("layers.3.attn.wo_b.weight")->data.data() - file) + 300;
  bytes[at] = '\x80', bytes[at + 1] = '\x7f';
  std::filesystem::permissions(shard, std::filesystem::perms::owner_write,
                               std::filesystem::perm_options::add);
  folder.write("broken/model-00001-of-00001.safetensors", bytes);
  EXPECT_THAT(error_of(broken, folder.file("c")), HasSubstr("layers.3.attn.wo_b.weight: row 2 holds"));
  EXPECT_FALSE(std::filesystem::exists(folder.file("c") + "/config.json"));
}

// Shapes for random checkpoints: the bundled V4.1 one, and the small V4 one with quantised formats.
std::string small_shape(Family family) {
  if (family == Family::kDeepseekV41) return text_of("models/demo-v41/config.json");
  return replaced(text_of("models/tiny-v4/config.json"), "\"model_type\"",
                  "\"expert_dtype\": \"fp4\", \"quantization_config\": {\"quant_method\": \"fp8\", "
                  "\"weight_block_size\": [128, 128], \"scale_fmt\": \"ue8m0\"}, \"model_type\"");
}

class RandomCheckpoint : public ::testing::TestWithParam<Family> {};

TEST_P(RandomCheckpoint, RunsWithOrdinaryLogitsAndTheSameBitsOnEveryKernel) {
  const TempFolder folder;
  const Result<WrittenCheckpoint> written = random_checkpoint(
      small_shape(GetParam()), folder.file("m"), {.seed = 3, .max_shard_bytes = std::int64_t{1} << 20});
  ASSERT_TRUE(written.ok()) << written.error().to_string();
  EXPECT_GT(written->shards, 1);
  const std::int64_t vocab = GetParam() == Family::kDeepseekV41 ? 8192 : 1024;
  const std::vector<TokenId> prompt = some_tokens(160, vocab);
  const std::vector<float> logits = run(folder.file("m"), prompt, Numerics::official());
  double square = 0;
  for (const float x : logits) {
    ASSERT_TRUE(std::isfinite(x));
    square += static_cast<double>(x) * x / static_cast<double>(logits.size());
  }
  std::printf("standard deviation of the logits %.2f\n", std::sqrt(square));
  EXPECT_GT(std::sqrt(square), 0.5);
  EXPECT_LT(std::sqrt(square), 20);
  EXPECT_EQ(run(folder.file("m"), prompt, Numerics::official(), KernelChoice::kReference), logits);
  EXPECT_EQ(run(folder.file("m"), prompt, Numerics::official(), KernelChoice::kFast, 7), logits);
  EXPECT_EQ(run(folder.file("m"), prompt, Numerics::reference(true), KernelChoice::kReference),
            run(folder.file("m"), prompt, Numerics::reference(true), KernelChoice::kFast, 50));
}

TEST_P(RandomCheckpoint, ScalesReachTheEndsOfTheirRange) {
  const TempFolder folder;
  ASSERT_TRUE(random_checkpoint(small_shape(GetParam()), folder.file("m"), {}).ok());
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder.file("m"));
  ASSERT_TRUE(checkpoint.ok());
  std::set<int> bytes;
  for (const std::string_view name : checkpoint->names()) {
    const TensorView* t = checkpoint->find(name);
    if (t->dtype == DType::kF8E8M0) bytes.insert(t->u8().begin(), t->u8().end());
  }
  EXPECT_TRUE(bytes.contains(1));
  EXPECT_TRUE(bytes.contains(254));
  EXPECT_FALSE(bytes.contains(255));  // the NaN
  EXPECT_GE(bytes.size(), 8u);
}

TEST_P(RandomCheckpoint, DependsOnShapeAndSeedOnly) {
  const TempFolder folder;
  const std::string shape = small_shape(GetParam());
  const auto fingerprint = [&](const std::string& name, const RandomOptions& options) {
    DI_CHECK(random_checkpoint(shape, folder.file(name), options).ok(), "writing");
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder.file(name));
    DI_CHECK(checkpoint.ok(), "opening");
    return checkpoint->full_hash();
  };
  const std::string first = fingerprint("a", {.seed = 1});
  EXPECT_EQ(fingerprint("b", {.seed = 1}), first);
  EXPECT_NE(fingerprint("c", {.seed = 2}), first);
  // Other shards, same tensors.
  ASSERT_TRUE(random_checkpoint(shape, folder.file("d"), {.seed = 1, .max_shard_bytes = 1 << 20}).ok());
  const Result<Checkpoint> one = Checkpoint::open(folder.file("a")),
                           many = Checkpoint::open(folder.file("d"));
  ASSERT_TRUE(one.ok() && many.ok());
  for (const std::string_view name : one->names()) {
    const TensorView *a = one->find(name), *b = many->find(name);
    ASSERT_TRUE(b != nullptr && a->data.size() == b->data.size()) << name;
    EXPECT_EQ(std::memcmp(a->data.data(), b->data.data(), a->data.size()), 0) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, RandomCheckpoint,
                         ::testing::Values(Family::kDeepseekV4, Family::kDeepseekV41),
                         [](const auto& i) { return i.param == Family::kDeepseekV4 ? "v4" : "v41"; });

// Draft tensors of both kinds belong to a V4 checkpoint and change neither its layers nor its logits. (A
// random tensor depends on its name alone, so the three backbones are the same.)
TEST(DraftTensors, AreAcceptedAndChangeNothing) {
  const TempFolder folder;
  const std::string plain = small_shape(Family::kDeepseekV4);
  const std::string none = "\"num_nextn_predict_layers\": 0";
  const std::string dspark =
      "\"num_nextn_predict_layers\": 1, \"dspark_block_size\": 5, \"dspark_noise_token_id\": 3, "
      "\"dspark_target_layer_ids\": [3, 4, 5], \"dspark_markov_rank\": 16";
  const std::vector<TokenId> prompt = some_tokens(140, 1024);
  std::vector<float> want;
  std::int64_t draft_tensors = 0;
  int checkpoints = 0;
  for (const std::string& draft : {none, std::string("\"num_nextn_predict_layers\": 1"), dspark}) {
    const std::string shape = replaced(plain, none, draft);
    const std::string target = folder.file("draft" + std::to_string(checkpoints++));
    const Result<WrittenCheckpoint> written = random_checkpoint(shape, target, {});
    ASSERT_TRUE(written.ok()) << draft << ": " << (written.ok() ? "" : written.error().to_string());
    const Result<ModelConfig> config = parse_config(shape);
    ASSERT_TRUE(config.ok());
    EXPECT_EQ(config->layers, 6);
    std::int64_t count = 0;
    for (const ExpectedTensor& t : expected_tensors(*config)) count += t.kind == TensorKind::kDraft ? 1 : 0;
    EXPECT_TRUE(draft == none ? count == 0 : count > draft_tensors) << count;
    draft_tensors = count;
    const std::vector<float> logits = run(target, prompt, Numerics::official());
    if (want.empty()) want = logits;
    EXPECT_EQ(logits, want) << draft;
  }
}

// The shapes measurements use: about 1.7 billion backbone parameters each, and Engram tables that fit their
// hash.
TEST(BenchShapes, AreWhole) {
  for (const char* path : {"bench/shapes/v41-mini.json", "bench/shapes/v4-mini.json"}) {
    const Result<ModelConfig> config = parse_config(text_of(path));
    ASSERT_TRUE(config.ok()) << path << ": " << config.error().to_string();
    std::int64_t routed = 0;
    for (const ExpectedTensor& t : expected_tensors(*config)) {
      if (t.kind == TensorKind::kRoutedExpert) routed += t.parameters();
    }
    EXPECT_NEAR(static_cast<double>(routed), 1.5e9, 0.05e9) << path;
    if (!config->engram) continue;
    std::vector<std::int32_t> map(static_cast<std::size_t>(config->vocab_size));
    for (std::size_t i = 0; i < map.size(); ++i) {
      map[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % config->engram->compressed_vocab);
    }
    const Result<EngramHash> hash = EngramHash::create(*config->engram, map);
    EXPECT_TRUE(hash.ok()) << path << ": " << hash.error().to_string();
  }
}

TEST(RandomCheckpointErrors, AreClear) {
  const TempFolder folder;
  const auto error_of = [&](const std::string& shape) {
    const Result<WrittenCheckpoint> r = random_checkpoint(shape, folder.file("m"), {});
    return r.ok() ? std::string("no error") : r.error().to_string();
  };
  EXPECT_THAT(error_of("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(replaced(small_shape(Family::kDeepseekV41), "24064", "24000")),
              HasSubstr("the hash primes need 24064 rows"));
  EXPECT_FALSE(std::filesystem::exists(folder.file("m")));
}

TEST(RandomCheckpointErrors, RoutingTablesMustNameExperts) {
  const TempFolder folder;
  ASSERT_TRUE(random_checkpoint(small_shape(Family::kDeepseekV4), folder.file("m"), {}).ok());
  const std::string shard = "m/model-00001-of-00001.safetensors";
  std::string bytes = read_file(folder.file(shard));
  {
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder.file("m"));
    ASSERT_TRUE(checkpoint.ok());
    const std::byte* file = checkpoint->shards()[0].file().bytes().data();
    const TensorView* table = checkpoint->find("layers.1.ffn.gate.tid2eid");
    bytes[static_cast<std::size_t>(table->data.data() - file) + 8 * 10] =
        8;  // token 3, first expert; there are 0..7
  }
  folder.write(shard, bytes);
  const Result<std::unique_ptr<Decoder>> model = open_model(folder.file("m"), {});
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.error().to_string(),
              HasSubstr("layers.1.ffn.gate.tid2eid: token 3 is routed to expert 8"));
}

}  // namespace
}  // namespace deepinfer
