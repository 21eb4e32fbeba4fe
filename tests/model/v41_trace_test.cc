// Discrete choices of the V4.1 pass against the official reference: table rows, experts, selected history.
// With fp32 activations they are equal until the first FP4/FP8 rounding flip, so the first layers are held to
// equality and later ones to a share.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "model/engram_hash.h"
#include "support/golden.h"
#include "tokenizer/token_map.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

using testing::Golden;

constexpr const char* kGolden = "tests/golden/v41-demo/golden_v41_fp32.safetensors";

// Keeps the integer choices of every layer, rows in order of position.
class ChoiceRecorder : public Observer {
 public:
  void value(std::string_view, std::int64_t, const float*, std::int64_t, std::int64_t) override {}
  void ids(std::string_view name, std::int64_t layer, const std::int32_t* values, std::int64_t rows,
           std::int64_t width) override {
    std::vector<std::int32_t>& all = choices_[{std::string(name), layer}];
    all.insert(all.end(), values, values + rows * width);
  }
  std::vector<std::int64_t> row(const std::string& name, std::int64_t layer, std::int64_t row,
                                std::int64_t width, std::int64_t used) const {
    const std::vector<std::int32_t>& all = choices_.at({name, layer});
    const auto begin = all.begin() + row * width;
    std::vector<std::int64_t> out(begin, begin + used);
    std::sort(out.begin(), out.end());
    return out;
  }

 private:
  std::map<std::pair<std::string, std::int64_t>, std::vector<std::int32_t>> choices_;
};

class V41Trace : public ::testing::Test {
 protected:
  static const Golden& golden() {
    static const Golden file(kGolden);
    return file;
  }
  static const ChoiceRecorder& choices() {
    static const ChoiceRecorder recorder = [] {
      ChoiceRecorder r;
      const auto model = testing::open_or_die(
          "models/demo-v41",
          {.numerics = Numerics::reference(true), .max_rows = 1024, .block_count = 4, .slot_count = 1});
      model->set_observer(&r);
      testing::Runner(*model, 0, 0, 1024).append(testing::to_tokens(golden().ints("prompt_ids")), 1024);
      return r;
    }();
    return recorder;
  }
};

TEST_F(V41Trace, EngramRowsEqual) {
  const auto model = testing::open_or_die("models/demo-v41", {.block_count = 1, .slot_count = 1});
  const Tokenizer tokenizer = Tokenizer::load("models/demo-v41/tokenizer.json").value();
  const EngramHash hash =
      EngramHash::create(*model->config().engram, derive_token_map(tokenizer).value().map).value();
  const std::vector<TokenId> ids = testing::to_tokens(golden().ints("prompt_ids"));
  const std::vector<std::int64_t> want = golden().ints("trace.engram_hash");  // [700, 2, 6]
  std::vector<std::int64_t> got;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    for (std::int64_t table = 0; table < 2; ++table) {
      std::vector<std::int64_t> rows(static_cast<std::size_t>(hash.rows_per_token()));
      hash.rows(table, std::span<const TokenId>(ids).first(t + 1), rows.data());
      got.insert(got.end(), rows.begin(), rows.end());
    }
  }
  EXPECT_EQ(got, want);
}

TEST_F(V41Trace, RoutersChooseTheSameExperts) {
  const std::vector<std::int64_t> rows = golden().ints("trace.rows");
  std::int64_t equal = 0, all = 0;
  for (std::int64_t layer = 0; layer < 10; ++layer) {
    const std::vector<std::int64_t> want = golden().ints("trace.router_ids." + std::to_string(layer));
    for (std::size_t i = 0; i < rows.size(); ++i, ++all) {
      std::vector<std::int64_t> expected(want.begin() + static_cast<std::ptrdiff_t>(4 * i),
                                         want.begin() + static_cast<std::ptrdiff_t>(4 * i + 4));
      std::sort(expected.begin(), expected.end());
      const bool same = choices().row("router_ids", layer, rows[i], 4, 4) == expected;
      equal += same ? 1 : 0;
      if (layer < 2) {
        EXPECT_TRUE(same) << "layer " << layer << ", row " << rows[i];
      }
    }
  }
  std::printf("router choices: %lld of %lld equal\n", static_cast<long long>(equal),
              static_cast<long long>(all));
  EXPECT_GE(static_cast<double>(equal), 0.98 * static_cast<double>(all));
}

TEST_F(V41Trace, IndexersSelectTheSameRows) {
  const std::vector<std::int64_t> rows = golden().ints("trace.topk_rows");
  std::int64_t shared = 0, all = 0;
  for (const std::int64_t layer : {2, 4, 6, 8}) {
    const std::vector<std::int64_t> want = golden().ints("trace.topk." + std::to_string(layer));
    const std::size_t width = want.size() / rows.size();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::int64_t count = choices().row("selected_count", layer, rows[i], 1, 1)[0];
      const std::vector<std::int64_t> got = choices().row("selected", layer, rows[i], 64, count);
      std::vector<std::int64_t> expected(want.begin() + static_cast<std::ptrdiff_t>(width * i),
                                         want.begin() + static_cast<std::ptrdiff_t>(width * (i + 1)));
      std::erase_if(expected, [](std::int64_t e) { return e < 0; });
      std::sort(expected.begin(), expected.end());
      ASSERT_EQ(got.size(), expected.size()) << "layer " << layer << ", row " << rows[i];
      std::vector<std::int64_t> both;
      std::set_intersection(got.begin(), got.end(), expected.begin(), expected.end(),
                            std::back_inserter(both));
      shared += static_cast<std::int64_t>(both.size());
      all += static_cast<std::int64_t>(expected.size());
      if (layer == 2) {
        EXPECT_EQ(got, expected) << "row " << rows[i];
      }
    }
  }
  std::printf("selected rows: %lld of %lld equal\n", static_cast<long long>(shared),
              static_cast<long long>(all));
  EXPECT_GE(static_cast<double>(shared), 0.98 * static_cast<double>(all));
}

}  // namespace
}  // namespace deepinfer
