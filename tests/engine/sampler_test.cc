// The sampler against its definition: random numbers by their published vectors, distributions by exact
// probabilities.
#include "engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "engine/row_math.h"

namespace deepinfer {
namespace {

using ::testing::ElementsAre;

std::vector<float> random_row(std::mt19937_64& random, std::size_t size, float spread) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> row(size);
  for (float& x : row) x = normal(random);
  return row;
}

/// Softmax in double precision.
std::vector<double> exact_probabilities(const std::vector<float>& row, double temperature) {
  const double max = *std::max_element(row.begin(), row.end());
  std::vector<double> p;
  for (const float x : row) p.push_back(std::exp((static_cast<double>(x) - max) / temperature));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
  return p;
}

/// The filtered distribution by the definition: sort everything, cut, renormalise. In double precision.
std::vector<double> exact_filtered(const std::vector<float>& row, const SamplingParams& params) {
  std::vector<double> p = exact_probabilities(row, params.temperature);
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return row[a] > row[b]; });
  std::size_t keep = order.size();
  if (params.top_k > 0) keep = std::min(keep, static_cast<std::size_t>(params.top_k));
  double total = 0;
  for (std::size_t i = 0; i < keep; ++i) total += p[order[i]];
  if (params.top_p < 1) {
    double mass = 0;
    std::size_t i = 0;
    while (i < keep && (i == 0 || mass < params.top_p * total)) mass += p[order[i++]];
    keep = i;
  }
  while (keep > 1 && p[order[keep - 1]] < params.min_p * p[order[0]]) --keep;
  std::vector<double> out(p.size(), 0.0);
  double sum = 0;
  for (std::size_t i = 0; i < keep; ++i) sum += p[order[i]];
  for (std::size_t i = 0; i < keep; ++i) out[order[i]] = p[order[i]] / sum;
  return out;
}

TokenId draw_token(Sampler& sampler, std::vector<float> row, const SamplingParams& params, std::uint64_t seed,
                   std::int64_t position) {
  DrawInputs inputs;
  inputs.params = &params;
  inputs.seed = seed;
  inputs.position = position;
  return sampler.draw(row, inputs).value().token;
}

TEST(Philox, EqualsThePublishedVectors) {
  EXPECT_THAT(philox4x32({0, 0, 0, 0}, 0), ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(Philox, BlocksOfGroupsHoldTheSameNumbers) {
  std::uint32_t block[4][16];
  token_words_block(0x123456789abcdef0, 1000, 77, RandomStream::kAccept, block);
  for (std::uint32_t g = 0; g < 16; ++g) {
    const PhiloxWords words = token_words(0x123456789abcdef0, 1000 + g, 77, RandomStream::kAccept);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(block[i][g], words[i]);
  }
}

TEST(Philox, StreamsPositionsAndSeedsDiffer) {
  const PhiloxWords base = token_words(7, 3, 100, RandomStream::kTarget);
  EXPECT_NE(base, token_words(8, 3, 100, RandomStream::kTarget));
  EXPECT_NE(base, token_words(7, 4, 100, RandomStream::kTarget));
  EXPECT_NE(base, token_words(7, 3, 101, RandomStream::kTarget));
  EXPECT_NE(base, token_words(7, 3, 100, RandomStream::kDraft));
  EXPECT_NE(answer_seed(7, 0), answer_seed(7, 1));
  EXPECT_NE(derived_seed(0, "a"), derived_seed(0, "b"));
}

TEST(Gumbel, IsFiniteAtBothEndsAndBounded) {
  EXPECT_NEAR(gumbel(0), 21.4876, 1e-3);
  EXPECT_GE(gumbel(0xffffffff), -3.0f);
  EXPECT_TRUE(std::isfinite(gumbel(0xffffffff)));
  EXPECT_GT(gumbel(1000), gumbel(2000)) << "small words win";
}

TEST(RowMath, ExponentialIsAccurateEverywhere) {
  double worst = 0;
  for (float x = -86.9f; x < 88.0f; x += 0.00137f) {
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(exp_fp32(x)) - exact) / exact);
  }
  EXPECT_LT(worst, 2e-7);
  EXPECT_EQ(exp_fp32(0.0f), 1.0f);
  EXPECT_EQ(exp_fp32(-std::numeric_limits<float>::infinity()), 0.0f);
}

TEST(RowMath, ScanFindsTheLowestBestIdAndEveryBadValue) {
  std::mt19937_64 random(11);
  for (std::size_t size : {2u, 15u, 16u, 17u, 300u}) {
    std::vector<float> row = random_row(random, size, 2);
    const auto best = std::max_element(row.begin(), row.end()) - row.begin();
    EXPECT_EQ(scan_row(row).best, best);
    row[size - 1] = row[0] = 50.0f;
    EXPECT_EQ(scan_row(row).best, 0) << "ties go to the lower id";
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
          std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
      for (const std::size_t at : {std::size_t{0}, size / 2, size - 1}) {
        std::vector<float> spoiled = row;
        spoiled[at] = bad;
        EXPECT_FALSE(scan_row(spoiled).finite) << bad << " at " << at;
      }
    }
    EXPECT_TRUE(scan_row(std::vector<float>(size, -0.25f)).flat);
    EXPECT_EQ(scan_row(row).flat, size == 2) << "two equal values are a whole row of them";
  }
  EXPECT_EQ(scan_row(std::vector<float>{-0.0f, 0.0f, -1.0f}).best, 0) << "both zeros are equal";
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowerOfEquals) {
  Sampler sampler;
  SamplingParams params;
  params.temperature = 0;
  EXPECT_EQ(draw_token(sampler, {1, 5, 3, 5}, params, 1, 0), 1);
}

/// Pearson's statistic of 100,000 draws; cells expecting less than 10 are pooled. Returns (statistic, degrees
/// of freedom).
std::pair<double, double> chi_square(const std::vector<double>& p, const std::vector<std::int64_t>& counts,
                                     double draws) {
  double statistic = 0, cells = 0, rest_expected = 0, rest_seen = 0;
  for (std::size_t v = 0; v < p.size(); ++v) {
    const double expected = p[v] * draws;
    if (expected < 10) {
      rest_expected += expected;
      rest_seen += static_cast<double>(counts[v]);
      continue;
    }
    const double d = static_cast<double>(counts[v]) - expected;
    statistic += d * d / expected;
    ++cells;
  }
  if (rest_expected >= 10) {
    statistic += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
    ++cells;
  }
  return {statistic, cells - 1};
}

TEST(Sampler, ChiSquareOver100000DrawsAgainstExactProbabilities) {
  constexpr std::int64_t kDraws = 100000;
  SamplingParams plain, cold, filtered, small_k, min_p;
  cold.temperature = 0.4;
  filtered.top_p = 0.9;
  filtered.temperature = 1.3;
  small_k.top_k = 12;
  min_p.min_p = 0.05;
  std::mt19937_64 random(2024);
  for (const SamplingParams* params : {&plain, &cold, &filtered, &small_k, &min_p}) {
    const std::vector<float> row = random_row(random, 200, 1.5f);
    const std::vector<double> p = exact_filtered(row, *params);
    std::vector<std::int64_t> counts(row.size(), 0);
    Sampler sampler;
    // Half of the draws vary the position, half the seed: both must be as good as fresh random numbers.
    for (std::int64_t i = 0; i < kDraws; ++i) {
      const bool by_seed = i % 2 == 0;
      ++counts[static_cast<std::size_t>(
          draw_token(sampler, row, *params, by_seed ? static_cast<std::uint64_t>(i) : 99, by_seed ? 5 : i))];
    }
    for (std::size_t v = 0; v < p.size(); ++v) {
      ASSERT_TRUE(p[v] > 0 || counts[v] == 0) << "a filtered token was drawn";
    }
    const auto [statistic, freedom] = chi_square(p, counts, static_cast<double>(kDraws));
    // Mean `freedom`, deviation sqrt(2 freedom): beyond 4 deviations has probability below 1e-3 for these
    // sizes.
    EXPECT_LT(statistic, freedom + 4 * std::sqrt(2 * freedom)) << freedom << " degrees of freedom";
    EXPECT_GT(statistic, freedom - 4 * std::sqrt(2 * freedom)) << "too good to be random";
  }
}

TEST(Sampler, SurvivorsEqualTheDefinitionAndTheirTailMassIsExactTo1e4) {
  const std::uint64_t seed = 77;
  std::mt19937_64 random(seed);
  Sampler sampler;
  for (int round = 0; round < 300; ++round) {
    SamplingParams params;
    std::vector<float> row =
        random_row(random, 50 + random() % 3000, 0.2f + 4.0f * static_cast<float>(random() % 1000) / 1000);
    if (round % 3 == 0) {  // many ties
      for (float& x : row) x = std::round(x);
    }
    params.temperature = 0.3 + static_cast<double>(random() % 100) / 50;
    if (random() % 2) params.top_p = static_cast<double>(1 + random() % 999) / 1000;
    if (random() % 2) params.top_k = static_cast<std::int64_t>(1 + random() % row.size());
    if (random() % 3 == 0) params.min_p = static_cast<double>(random() % 500) / 1000;
    if (params.top_p == 1 && params.top_k == 0 && params.min_p == 0) params.top_k = 5;
    const std::vector<double> exact = exact_filtered(row, params);
    const auto& kept = sampler.survivors(row, params);
    ASSERT_FALSE(kept.empty());
    const std::vector<double> p = exact_probabilities(row, params.temperature);
    double mass = 0, exact_mass = 0;
    std::size_t exact_count = 0;
    for (const auto& [scaled, token] : kept) mass += p[static_cast<std::size_t>(token)];
    for (std::size_t v = 0; v < p.size(); ++v) {
      if (exact[v] > 0) exact_mass += p[v], ++exact_count;
    }
    // Where the cumulated mass meets top_p to within rounding, one token more or less is right; nothing
    // beyond.
    EXPECT_NEAR(mass, exact_mass, 1e-4) << "seed " << seed << " round " << round;
    EXPECT_LE(std::abs(static_cast<double>(kept.size()) - static_cast<double>(exact_count)), 1)
        << "seed " << seed << " round " << round;
    for (std::size_t i = 1; i < kept.size(); ++i) {
      ASSERT_TRUE(kept[i - 1].first > kept[i].first ||
                  (kept[i - 1].first == kept[i].first && kept[i - 1].second < kept[i].second));
    }
  }
}

TEST(Sampler, SkippingHopelessTokensNeverChangesTheDraw) {
  const std::uint64_t seed = 5;
  std::mt19937_64 random(seed);
  Sampler sampler;
  for (int round = 0; round < 2000; ++round) {
    const std::vector<float> row =
        random_row(random, 2 + random() % 300, static_cast<float>(random() % 8) + 0.01f);
    SamplingParams params;
    params.temperature = 0.2 + static_cast<double>(random() % 100) / 40;
    const std::int64_t position = static_cast<std::int64_t>(random() % 100000);
    // By the definition: noise for every token.
    const float max = *std::max_element(row.begin(), row.end());
    TokenId winner = -1;
    float score = 0;
    for (std::size_t v = 0; v < row.size(); ++v) {
      const PhiloxWords words =
          token_words(seed, static_cast<std::uint32_t>(v / 4), position, RandomStream::kTarget);
      const float challenge = (row[v] - max) * inverse_temperature(params) + gumbel(words[v % 4]);
      if (winner < 0 || challenge > score) winner = static_cast<TokenId>(v), score = challenge;
    }
    ASSERT_EQ(draw_token(sampler, row, params, seed, position), winner) << "round " << round;
    params.top_k = static_cast<std::int64_t>(row.size()) - 1;  // the filtered path, with the same noise
    const auto order = top_entries(row, params.top_k);
    if (std::any_of(order.begin(), order.end(), [&](const auto& e) { return e.second == winner; })) {
      ASSERT_EQ(draw_token(sampler, row, params, seed, position), winner) << "round " << round;
    }
  }
}

TEST(Sampler, PenaltiesBiasMaskAndBansInTheDocumentedOrder) {
  SamplingParams params;
  params.temperature = 0;
  params.repetition_penalty = 2.0;
  params.presence_penalty = 0.5;
  params.frequency_penalty = 0.25;
  params.logit_bias = {{4, 10.0f}};
  TokenCounts counts;
  counts.add_prompt(0);
  counts.add_answer(1);
  counts.add_answer(1);
  counts.add_answer(2);
  DrawInputs inputs;
  inputs.params = &params;
  inputs.counts = &counts;
  const std::uint32_t allowed = 0b011111;
  const TokenId banned = 4;
  inputs.allowed = {&allowed, 1};
  inputs.banned = {&banned, 1};
  std::vector<float> row = {4, 4, -4, 1, 0, 9};
  process_row(row, inputs);
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_THAT(row, ElementsAre(2, 2 - 0.5f - 0.5f, -8 - 0.25f - 0.5f, 1, -inf, -inf));
  counts.remove_answer(1);
  counts.remove_answer(1);
  EXPECT_FALSE(counts.all().contains(1)) << "taking back leaves nothing behind";
}

TEST(Sampler, LogprobsAreOfThePlainDistribution) {
  std::mt19937_64 random(3);
  const std::vector<float> row = random_row(random, 100, 2);
  const std::vector<double> p = exact_probabilities(row, 1);
  SamplingParams params;
  params.temperature = 0.5;
  params.top_k = 1;
  params.logit_bias = {{7, 100.0f}};
  DrawInputs inputs;
  inputs.params = &params;
  inputs.logprobs = 3;
  std::vector<float> copy = row;
  Sampler sampler;
  const Draw draw = sampler.draw(copy, inputs).value();
  EXPECT_EQ(draw.token, 7);
  EXPECT_NEAR(draw.logprob.logprob, std::log(p[7]), 1e-5);
  ASSERT_EQ(draw.logprob.top.size(), 3u);
  const auto best = std::max_element(p.begin(), p.end()) - p.begin();
  EXPECT_EQ(draw.logprob.top[0].first, best);
  EXPECT_NEAR(draw.logprob.top[0].second, std::log(p[static_cast<std::size_t>(best)]), 1e-5);
  EXPECT_GE(draw.logprob.top[1].second, draw.logprob.top[2].second);
}

TEST(Sampler, BadRowsAndImpossibleConstraintsAreErrors) {
  SamplingParams params;
  DrawInputs inputs;
  inputs.params = &params;
  Sampler sampler;
  std::vector<float> nan = {1, std::numeric_limits<float>::quiet_NaN(), 2};
  EXPECT_THAT(sampler.draw(nan, inputs).error().message, ::testing::HasSubstr("not finite"));
  std::vector<float> flat = {1, 1, 1};
  EXPECT_THAT(sampler.draw(flat, inputs).error().message, ::testing::HasSubstr("all equal"));
  const std::uint32_t none = 0;
  inputs.allowed = {&none, 1};
  std::vector<float> row = {1, 2, 3};
  EXPECT_THAT(sampler.draw(row, inputs).error().message, ::testing::HasSubstr("allow no token"));
}

TEST(Sampler, ExtremeParametersStayFinite) {
  Sampler sampler;
  for (const double temperature : {1e-300, 1e-7, 1e6}) {
    SamplingParams params;
    params.temperature = temperature;
    const TokenId plain = draw_token(sampler, {3, 1, 2, -50}, params, 1, 1);
    EXPECT_TRUE(plain >= 0 && plain < 4);
    EXPECT_TRUE(temperature > 1 || plain == 0);
    params.top_p = 1e-9;
    EXPECT_EQ(draw_token(sampler, {3, 1, 2, -50}, params, 1, 1), 0);
    params.top_p = std::nextafter(1.0, 0.0);
    params.min_p = 0.999999;
    draw_token(sampler, {3, 1, 2, -50}, params, 1, 1);
  }
}

TEST(Sampler, ALargeVocabularyIsCheap) {
  std::mt19937_64 random(1);
  const std::vector<float> row = random_row(random, 129280, 2.5f);
  SamplingParams greedy, plain, usual;
  greedy.temperature = 0;
  usual.temperature = 0.7;
  usual.top_p = 0.95;
  Sampler sampler;
  for (const auto& [name, params] :
       {std::pair{"greedy", &greedy}, {"temperature", &plain}, {"top-p", &usual}}) {
    double best = 1;
    for (int i = 0; i < 30; ++i) {
      std::vector<float> copy = row;
      DrawInputs inputs;
      inputs.params = params;
      inputs.position = i;
      const auto start = std::chrono::steady_clock::now();
      (void)sampler.draw(copy, inputs).value();
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    RecordProperty(name, std::to_string(best * 1e6) + " us");
    std::printf("  %s: %.0f us a row of 129,280\n", name, best * 1e6);
    EXPECT_LT(best, 0.05) << name;  // an order of magnitude above what any machine needs
  }
}

}  // namespace
}  // namespace deepinfer
