// Whole texts against the official reference: greedy answers step by step, and perplexity of held-out
// documents.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "io/json.h"
#include "support/golden.h"

namespace deepinfer {
namespace {

using testing::Runner;

const Json& golden() {
  static const Json parsed = [] {
    std::ifstream in("tests/golden/v41-demo/demo_golden.json");
    std::stringstream text;
    text << in.rdbuf();
    Result<Json> json = parse_json(text.str());
    DI_CHECK(json.ok(), json.ok() ? "" : json.error().to_string());
    return std::move(json).value();
  }();
  return parsed;
}

std::vector<TokenId> tokens_of(const Json& list) {
  std::vector<TokenId> ids;
  for (const Json& id : list.as_array()) ids.push_back(static_cast<TokenId>(id.as_int()));
  return ids;
}

std::unique_ptr<Decoder> open(const std::string& mode) {
  return testing::open_or_die("models/demo-v41",
                              {.numerics = mode == "fp32" ? Numerics::reference(true) : Numerics::official(),
                               .max_rows = 1024,
                               .block_count = 4,
                               .slot_count = 1});
}

class V41Text : public ::testing::TestWithParam<const char*> {};

// Fed with the golden tokens, the engine must choose the golden token wherever the reference was sure.
TEST_P(V41Text, GreedyAnswersFollowTheReference) {
  const std::string mode = GetParam();
  const std::unique_ptr<Decoder> model = open(mode);
  const auto vocab = model->vocab_size();
  std::int64_t steps = 0, agreed = 0, sure = 0;
  for (const Json& item : golden().find("greedy")->find(mode)->as_array()) {
    const std::vector<TokenId> prompt = tokens_of(*item.find("prompt_ids")),
                               answer = tokens_of(*item.find("ids"));
    const JsonArray& gaps = item.find("top2_gap")->as_array();
    std::vector<TokenId> fed = prompt;
    fed.insert(fed.end(), answer.begin(), answer.end() - 1);
    const std::vector<float> logits = Runner(*model, 0, 0, 1024).append(fed, 1024);
    for (std::size_t i = 0; i < answer.size(); ++i, ++steps) {
      const float* row = logits.data() + static_cast<std::int64_t>(prompt.size() - 1 + i) * vocab;
      const bool same = std::max_element(row, row + vocab) - row == answer[i];
      agreed += same ? 1 : 0;
      if (gaps[i].as_double() > 0.5) {
        ++sure;
        EXPECT_TRUE(same) << item.find("prompt")->as_string() << " step " << i << ", gap "
                          << gaps[i].as_double();
      }
    }
  }
  std::printf("%s: %lld of %lld greedy steps agree; %lld with a gap above 0.5\n", mode.c_str(),
              static_cast<long long>(agreed), static_cast<long long>(steps), static_cast<long long>(sure));
  EXPECT_GE(static_cast<double>(agreed), 0.95 * static_cast<double>(steps));
  EXPECT_GT(sure, steps / 2);
}

struct Likelihood {
  double nll = 0;
  std::int64_t tokens = 0;
};

Likelihood score(Decoder& model, const std::vector<TokenId>& document) {
  const auto vocab = static_cast<std::size_t>(model.vocab_size());
  const std::vector<float> logits = Runner(model, 0, 0, 1024).append(document, 1024);
  Likelihood result;
  for (std::size_t t = 0; t + 1 < document.size(); ++t, ++result.tokens) {
    const float* row = logits.data() + t * vocab;
    const double top = *std::max_element(row, row + vocab);
    double sum = 0;
    for (std::size_t i = 0; i < vocab; ++i) sum += std::exp(row[i] - top);
    result.nll += top + std::log(sum) - row[document[t + 1]];
  }
  return result;
}

TEST_P(V41Text, DocumentLikelihoodsMatch) {
  const std::string mode = GetParam();
  const std::unique_ptr<Decoder> model = open(mode);
  const JsonArray& documents = golden().find("docs_ids")->as_array();
  const JsonArray& expected = golden().find("perplexity")->find(mode)->find("nll_sum_per_doc")->as_array();
  for (const std::size_t d : {21u, 0u}) {
    const Likelihood got = score(*model, tokens_of(documents[d]));
    EXPECT_NEAR(got.nll / expected[d].as_double(), 1.0, 0.003) << "document " << d;
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, V41Text, ::testing::Values("official_ix32", "fp32"),
                         [](const auto& param_info) { return std::string(param_info.param); });

TEST(V41TextSlow, PerplexityOfAllDocuments) {
  const std::unique_ptr<Decoder> model = open("official_ix32");
  Likelihood all;
  for (const Json& document : golden().find("docs_ids")->as_array()) {
    const Likelihood one = score(*model, tokens_of(document));
    all.nll += one.nll;
    all.tokens += one.tokens;
  }
  const double perplexity = std::exp(all.nll / static_cast<double>(all.tokens));
  std::printf("perplexity %.4f over %lld tokens (reference 49.7322)\n", perplexity,
              static_cast<long long>(all.tokens));
  EXPECT_EQ(all.tokens, 23908);
  EXPECT_NEAR(perplexity / 49.7321577, 1.0, 0.003);
}

}  // namespace
}  // namespace deepinfer
