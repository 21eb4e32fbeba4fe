// The V4.1 forward pass against values computed by the official reference on the bundled model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "support/golden.h"

namespace deepinfer {
namespace {

using testing::Golden;
using testing::Runner;

constexpr const char* kModel = "models/demo-v41";

std::string golden_path(const std::string& mode) {
  return "tests/golden/v41-demo/golden_v41_" + mode + ".safetensors";
}

struct Difference {
  double max = 0, mean = 0;
  double argmax_agreement = 0;  // share of positions whose best token is the golden one
};

// Prefills the golden prompt, feeds its decode ids, and compares all stored positions.
class GoldenRun {
 public:
  GoldenRun(const std::string& mode, const Numerics& numerics, KernelChoice kernels)
      : golden_(golden_path(mode)),
        model_(testing::open_or_die(
            kModel, {.numerics = numerics, .kernels = kernels, .block_count = 4, .slot_count = 1})) {}

  void run(Observer* observer = nullptr) {
    model_->set_observer(observer);
    Runner runner(*model_, 0, 0, 1024);
    prefill_ = runner.append(testing::to_tokens(golden_.ints("prompt_ids")), 256);
    model_->set_observer(nullptr);
    for (const TokenId id : testing::to_tokens(golden_.ints("decode.ids"))) {
      const std::vector<float> row = runner.append({id}, 1);
      decode_.insert(decode_.end(), row.begin(), row.end());
    }
  }

  Difference columns(const std::string& part) const {
    const std::vector<float>& logits = part == "prefill" ? prefill_ : decode_;
    const std::vector<float> want = golden_.floats(part + ".logits_cols");
    const std::vector<std::int64_t> cols = golden_.ints("prefill.cols");
    const std::vector<std::int64_t> top = golden_.ints(part + ".top8_ids");
    const std::size_t rows = want.size() / cols.size();
    std::size_t agreed = 0;
    Difference d;
    for (std::size_t t = 0; t < rows; ++t) {
      const float* row = logits.data() + t * vocab();
      for (std::size_t i = 0; i < cols.size(); ++i) {
        const double delta = std::abs(row[cols[i]] - want[t * cols.size() + i]);
        d.max = std::max(d.max, delta);
        d.mean += delta / static_cast<double>(want.size());
      }
      const auto best = std::max_element(row, row + vocab()) - row;
      agreed += best == top[t * 8] ? 1 : 0;
    }
    d.argmax_agreement = static_cast<double>(agreed) / static_cast<double>(rows);
    return d;
  }

  // Mean |dlogit| of one prefill position over the stored columns.
  double position_mean(std::size_t t) const {
    const std::vector<float> want = golden_.floats("prefill.logits_cols");
    const std::vector<std::int64_t> cols = golden_.ints("prefill.cols");
    double sum = 0;
    for (std::size_t i = 0; i < cols.size(); ++i) {
      sum += std::abs(prefill_[t * vocab() + static_cast<std::size_t>(cols[i])] - want[t * cols.size() + i]);
    }
    return sum / static_cast<double>(cols.size());
  }

  Difference whole_rows() const {
    const std::vector<std::int64_t> rows = golden_.ints("prefill.rows");
    const std::vector<float> want = golden_.floats("prefill.logits_rows");
    Difference d;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (std::size_t i = 0; i < vocab(); ++i) {
        d.max = std::max<double>(d.max, std::abs(prefill_[static_cast<std::size_t>(rows[r]) * vocab() + i] -
                                                 want[r * vocab() + i]));
      }
    }
    return d;
  }

  const Golden& golden() const { return golden_; }
  std::size_t vocab() const { return static_cast<std::size_t>(model_->vocab_size()); }

 private:
  Golden golden_;
  std::unique_ptr<Decoder> model_;
  std::vector<float> prefill_, decode_;
};

class V41Golden : public ::testing::TestWithParam<KernelChoice> {};

TEST_P(V41Golden, Fp32WithoutRoundingIsSharp) {
  GoldenRun run("fp32_nofq", Numerics::reference(false), GetParam());
  run.run();
  const Difference prefill = run.columns("prefill"), decode = run.columns("decode"), rows = run.whole_rows();
  std::printf("fp32_nofq: max |dlogit| prefill %.2e, whole rows %.2e, decode %.2e\n", prefill.max, rows.max,
              decode.max);
  EXPECT_LE(prefill.max, 1e-4);
  EXPECT_LE(rows.max, 1e-4);
  EXPECT_LE(decode.max, 1e-4);
  EXPECT_EQ(prefill.argmax_agreement, 1.0);
}

TEST_P(V41Golden, Fp32WithCacheRoundingAgrees) {
  GoldenRun run("fp32", Numerics::reference(true), GetParam());
  run.run();
  const Difference prefill = run.columns("prefill"), decode = run.columns("decode");
  std::printf("fp32: argmax %.2f %%, mean |dlogit| %.4f, max %.3f; decode argmax %.1f %%\n",
              100 * prefill.argmax_agreement, prefill.mean, prefill.max, 100 * decode.argmax_agreement);
  EXPECT_GE(prefill.argmax_agreement, 0.99);
  EXPECT_LE(prefill.mean, 0.02);
}

TEST_P(V41Golden, OfficialModeAgreesWithinItsNoise) {
  GoldenRun run("official_ix32", Numerics::official(), GetParam());
  run.run();
  const Difference prefill = run.columns("prefill"), decode = run.columns("decode");
  std::printf("official: argmax %.2f %%, mean |dlogit| %.4f, max %.3f; decode argmax %.1f %%\n",
              100 * prefill.argmax_agreement, prefill.mean, prefill.max, 100 * decode.argmax_agreement);
  // With bf16 activations one rounding flip moves everything that follows: two builds of this very code that
  // differ in the last bit of exp() agree in 94 % of the argmaxes and differ by 0.105 on average (positions 0
  // to 8 excepted). No implementation can be held closer to another one than that.
  EXPECT_GE(prefill.argmax_agreement, 0.95);
  EXPECT_LE(prefill.mean, 0.125);
  // Before the first flip the values are the same: the first position sees one key and no noise.
  EXPECT_LE(run.position_mean(0), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Kernels, V41Golden, ::testing::Values(KernelChoice::kReference, KernelChoice::kFast),
                         [](const auto& param_info) {
                           return param_info.param == KernelChoice::kReference ? "reference" : "fast";
                         });

}  // namespace
}  // namespace deepinfer
