#include "grammar/grammar_cache.h"

#include <gtest/gtest.h>

#include <thread>

#include "grammar/front_ends.h"
#include "grammar/matcher.h"
#include "grammar/walk_vocabulary.h"

namespace deepinfer::grammar {
namespace {

using std::chrono::milliseconds;
using testing::byte_vocabulary;

GrammarCache::Build regex_build(std::string pattern, std::atomic<int>* builds = nullptr) {
  return [pattern = std::move(pattern), builds](const CancelFlag& cancel) {
    if (builds != nullptr) ++*builds;
    CompileOptions options;
    options.cancel = &cancel;
    return compile_regex(pattern, byte_vocabulary(), {}, options);
  };
}

GrammarCache::Build slow_build(milliseconds duration) {
  return [duration](const CancelFlag& cancel) -> Result<GrammarPtr> {
    const auto end = std::chrono::steady_clock::now() + duration;
    while (std::chrono::steady_clock::now() < end) {
      if (cancel) return Error{ErrorCode::kCancelled, "stopped", {}};
      std::this_thread::sleep_for(milliseconds(2));
    }
    return compile_regex("slow", byte_vocabulary());
  };
}

TEST(GrammarCache, EqualKeysShareOneBuild) {
  GrammarCache cache;
  std::atomic<int> builds{0};
  std::vector<GrammarCache::Ticket> tickets;
  for (int i = 0; i < 50; ++i)
    tickets.push_back(cache.request("regex:[a-z]+", regex_build("[a-z]+", &builds)));
  const GrammarPtr first = tickets[0].get().value();
  for (auto& t : tickets) EXPECT_EQ(t.get().value(), first);
  EXPECT_EQ(cache.request("regex:[a-z]+", regex_build("[a-z]+", &builds)).get().value(), first);
  EXPECT_EQ(builds, 1);
}

TEST(GrammarCache, ASlowBuildDoesNotHoldUpOthers) {
  GrammarCache::Options options;
  options.workers = 1;
  options.slow_after = milliseconds(30);
  options.deadline = milliseconds(60'000);
  GrammarCache cache(options);
  auto slow = cache.request("slow", slow_build(milliseconds(20'000)));
  auto slow2 = cache.request("slow2", slow_build(milliseconds(20'000)));
  const auto quick = cache.request("quick", regex_build("abc")).wait_for(milliseconds(10'000));
  ASSERT_TRUE(quick.has_value());
  EXPECT_TRUE(quick->ok());
  EXPECT_FALSE(slow.ready());
  EXPECT_GE(cache.stats().workers, 2u);
}

TEST(GrammarCache, ABuildPastItsDeadlineIsAnErrorOfThatRequest) {
  GrammarCache::Options options;
  options.deadline = milliseconds(40);
  GrammarCache cache(options);
  const auto r = cache.request("slow", slow_build(milliseconds(30'000))).get();
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::kDeadline);
  EXPECT_TRUE(cache.request("quick", regex_build("abc")).get().ok());
}

TEST(GrammarCache, FailuresAreReportedAndNotKept) {
  GrammarCache cache;
  std::atomic<int> builds{0};
  for (int i = 0; i < 2; ++i) {
    const auto r = cache.request("bad", regex_build("(", &builds)).get();
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(builds, 2);
  EXPECT_EQ(cache.stats().grammars, 0u);
}

TEST(GrammarCache, StaysUnderItsByteBudgetDroppingTheOldest) {
  GrammarCache::Options options;
  options.budget_bytes = 100'000;
  GrammarCache cache(options);
  std::atomic<int> builds{0};
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(
        cache.request("k" + std::to_string(i), regex_build("[a-z]{" + std::to_string(i + 1) + "}x", &builds))
            .get()
            .ok());
    cache.request("k0", regex_build("[a-z]{1}x", &builds)).get().ok();  // stays young
  }
  const auto stats = cache.stats();
  EXPECT_LE(stats.bytes, options.budget_bytes);
  EXPECT_GT(stats.evictions, 0u);
  EXPECT_EQ(builds, 60) << "the entry in use was dropped";
}

TEST(GrammarCache, AGrammarThatUsedUpItsStatesIsBuiltAnew) {
  GrammarCache cache;
  std::atomic<int> builds{0};
  const std::string key = "exponential";
  const auto build = [&] {
    return cache
        .request(key,
                 [&builds](const CancelFlag&) {
                   ++builds;
                   CompileOptions options;
                   options.limits.max_regex_nodes = 20'000;
                   return compile_regex("[ab]*a[ab]{40}", byte_vocabulary(), {}, options);
                 })
        .get()
        .value();
  };
  const GrammarPtr first = build();
  Matcher m(first);
  std::mt19937 rng(1);
  std::string text;
  for (int i = 0; i < 60'000; ++i) text.push_back(rng() % 2 ? 'a' : 'b');
  const Status s = m.accept_bytes(text);
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().code, ErrorCode::kDeadline);
  EXPECT_TRUE(first->exhausted());
  EXPECT_LT(first->memory_bytes(), 16u << 20);
  const GrammarPtr second = build();
  EXPECT_NE(second, first);
  EXPECT_EQ(builds, 2);
  EXPECT_TRUE(testing::whole_match(second, "ba" + std::string(40, 'b')));
}

TEST(GrammarCache, ClosingCancelsWhatRunsAndWhatWaits) {
  GrammarCache::Ticket running, waiting;
  {
    GrammarCache::Options options;
    options.max_workers = 1;
    GrammarCache cache(options);
    running = cache.request("a", slow_build(milliseconds(30'000)));
    waiting = cache.request("b", slow_build(milliseconds(30'000)));
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_FALSE(running.get().ok());
  EXPECT_FALSE(waiting.get().ok());
}

TEST(GrammarCache, MatchersOfOneGrammarRunOnManyThreads) {
  const GrammarPtr g =
      compile_gbnf("root ::= \"[\" item (\",\" item)* \"]\"\nitem ::= root | \"\\\"\" [a-z ]* \"\\\"\"",
                   byte_vocabulary())
          .value();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned seed = 0; seed < 20; ++seed) {
        const auto walk = testing::random_walk(g, seed * 4 + t, 60);
        Matcher m(g);
        if (!m.accept_bytes(walk.text).ok() || m.is_accepting() != walk.finished) ++wrong;
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace deepinfer::grammar
