// Perplexity against sums over the oracle, and a determinism check that must notice a model that is not.
#include "engine/eval.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/harness.h"

namespace deepinfer {
namespace {

using ::testing::HasSubstr;

std::vector<std::vector<TokenId>> random_documents(std::uint64_t seed, std::vector<std::size_t> lengths,
                                                   std::uint64_t vocab) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<TokenId>> documents;
  for (const std::size_t length : lengths) {
    documents.emplace_back(length);
    for (TokenId& token : documents.back()) token = static_cast<TokenId>(random() % vocab);
  }
  return documents;
}

/// Summed nats of tokens [1, end) given all before them, in double precision.
double oracle_nll(const FakeModel& model, std::span<const TokenId> tokens, std::size_t from, std::size_t to) {
  double nll = 0;
  for (std::size_t i = from; i < std::min(to, tokens.size()); ++i) {
    const std::vector<float> row = model.oracle(tokens.first(i));
    double sum = 0;
    for (const float x : row) sum += std::exp(static_cast<double>(x));
    nll += std::log(sum) - static_cast<double>(row[static_cast<std::size_t>(tokens[i])]);
  }
  return nll;
}

TEST(Perplexity, EqualsTheOracleInTotalPerDocumentAndPerBucket) {
  FakeModel model({.vocab = 50, .blocks = 8, .slots = 4, .max_rows = 100});
  auto engine = Engine::create({&model, nullptr, nullptr}, {.logits_tile_bytes = 5000}).value();
  const auto documents = random_documents(3, {300, 1, 0, 2, 150, 40}, 50);
  PerplexityOptions options;
  options.bucket_borders = {10, 100};
  options.in_flight = 2;
  std::int64_t seen = 0;
  options.on_progress = [&](std::int64_t tokens) { seen = tokens; };
  const PerplexityResult result = measure_perplexity(*engine, documents, options).value();
  double all = 0;
  std::int64_t tokens = 0;
  for (std::size_t d = 0; d < documents.size(); ++d) {
    const double expected = oracle_nll(model, documents[d], 1, documents[d].size());
    EXPECT_NEAR(result.documents[d].nll, expected, 1e-3) << "document " << d;
    all += expected;
    tokens += std::max<std::int64_t>(0, static_cast<std::int64_t>(documents[d].size()) - 1);
  }
  EXPECT_EQ(result.total.tokens, tokens);
  EXPECT_NEAR(result.total.nll, all, 1e-3);
  EXPECT_NEAR(result.total.perplexity(), std::exp(all / static_cast<double>(tokens)), 1e-3);
  EXPECT_EQ(seen, 300 + 2 + 150 + 40);
  ASSERT_EQ(result.buckets.size(), 3u);
  for (const auto& [bucket, from, to] : {std::tuple{0, 1, 10}, {1, 10, 100}, {2, 100, 300}}) {
    double expected = 0;
    for (const auto& document : documents)
      expected += oracle_nll(model, document, static_cast<std::size_t>(from), static_cast<std::size_t>(to));
    const PerplexityBucket& b = result.buckets[static_cast<std::size_t>(bucket)];
    EXPECT_EQ(b.from, from);
    EXPECT_EQ(b.to, to);
    EXPECT_NEAR(b.nll, expected, 1e-3);
  }
}

TEST(Perplexity, WindowsAreScoredByThemselves) {
  FakeModel model({.vocab = 50, .blocks = 8});
  auto engine = Engine::create({&model, nullptr, nullptr}, {}).value();
  const auto documents = random_documents(4, {250}, 50);
  PerplexityOptions options;
  options.window = 100;
  const PerplexityResult result = measure_perplexity(*engine, documents, options).value();
  EXPECT_EQ(result.total.tokens, 99 + 99 + 49);
  double expected = 0;
  for (const std::size_t at : {0u, 100u, 200u}) {
    const auto part = std::span(documents[0]).subspan(at, std::min<std::size_t>(100, 250 - at));
    expected += oracle_nll(model, part, 1, part.size());
  }
  EXPECT_NEAR(result.total.nll, expected, 1e-3);
  options.window = 1 << 30;
  EXPECT_THAT(measure_perplexity(*engine, documents, options).error().message,
              HasSubstr("the engine's context"));
  options.window = 0;
  EXPECT_FALSE(measure_perplexity(*engine, random_documents(4, {30}, 99), options).ok())
      << "ids outside the vocabulary";
}

// A prompt of 100,000 tokens: never more than one tile of logits is asked for.
TEST(Perplexity, AHundredThousandTokensInBoundedMemory) {
  FakeModel model({.vocab = 64, .blocks = 400, .slots = 1, .max_rows = 512});
  auto engine = Engine::create({&model, nullptr, nullptr}, {.logits_tile_bytes = 64 * 4 * 32}).value();
  const auto documents = random_documents(5, {100000}, 64);
  const PerplexityResult result = measure_perplexity(*engine, documents, {}).value();
  EXPECT_EQ(result.total.tokens, 99999);
  EXPECT_EQ(model.most_logits, 32);
  EXPECT_THAT(model.violations, ::testing::IsEmpty());
  EXPECT_NEAR(std::log(result.total.perplexity()),
              oracle_nll(model, std::span(documents[0]).first(2000), 1, 2000) / 1999, 0.2);
}

std::vector<Request> probes() {
  std::vector<Request> requests;
  const auto prompts = random_documents(6, {5, 250, 30, 120, 240, 1}, 64);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    Request request;
    request.id = fmt::format("probe {}", i);
    request.prompt = prompts[i];
    request.sampling.max_tokens = 30;
    request.sampling.temperature = i % 2 == 0 ? 0 : 1;
    request.sampling.logprobs = 2;
    request.sampling.prompt_logprobs = 1;
    requests.push_back(request);
  }
  return requests;
}

TEST(Determinism, AllWaysOfRunningGiveTheSameBits) {
  const EngineFactory factory = [](const EngineOptions& options) -> Result<std::unique_ptr<EngineInterface>> {
    static FakeModel model({.vocab = 64, .blocks = 16, .slots = 8, .max_rows = 128, .eos_bias = -2});
    DI_ASSIGN(auto engine, Engine::create({&model, nullptr, nullptr}, options));
    return std::unique_ptr<EngineInterface>(std::move(engine));
  };
  DeterminismOptions options;
  options.repeat = 3;
  const DeterminismResult result = check_determinism(factory, probes(), options).value();
  EXPECT_TRUE(result.deterministic());
  ASSERT_EQ(result.variants.size(), 6u);
  EXPECT_EQ(result.variants[0].name, "batched");
  EXPECT_EQ(result.variants[0].compared, 18);
  EXPECT_THAT(result.variants.back().name, HasSubstr("preemptions"));
}

TEST(Determinism, AModelThatDependsOnItsNeighboursIsCaught) {
  const EngineFactory factory = [](const EngineOptions& options) -> Result<std::unique_ptr<EngineInterface>> {
    static FakeModel model({.vocab = 64, .blocks = 16, .slots = 8, .max_rows = 128, .eos_bias = -2});
    model.on_row = [](std::uint64_t, std::span<float> row) {
      if (model.output_rows() > 4) row[9] = std::nextafter(row[9], 10.0f);  // one bit, in company only
    };
    DI_ASSIGN(auto engine, Engine::create({&model, nullptr, nullptr}, options));
    return std::unique_ptr<EngineInterface>(std::move(engine));
  };
  auto requests = probes();
  for (Request& request : requests) request.sampling.prompt_logprobs = -1, request.sampling.logprobs = 20;
  const DeterminismResult result = check_determinism(factory, requests).value();
  EXPECT_FALSE(result.deterministic());
  EXPECT_GT(result.variants[0].differing, 0);
  EXPECT_THAT(result.variants[0].first_difference, HasSubstr("request 'probe"));
}

}  // namespace
}  // namespace deepinfer
