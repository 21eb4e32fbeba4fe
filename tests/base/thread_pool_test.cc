#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace deepinfer {
namespace {

TEST(ThreadPool, EveryPieceRunsOnceOnAThreadOfThePool) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.thread_count(), threads);
    for (const std::int64_t count : {0, 1, 5, 64, 1000}) {
      for (const std::int64_t grain : {1, 3, 100}) {
        std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
        pool.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end, int thread) {
          EXPECT_TRUE(thread >= 0 && thread < threads);
          EXPECT_TRUE(begin % grain == 0 && end <= count && end - begin <= grain);
          for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
        });
        for (const auto& s : seen) ASSERT_EQ(s.load(), 1);
      }
    }
  }
}

// Loops so short that workers come late, leave while the next one opens, or miss a loop altogether. Plain
// memory is written in the loop and read behind it: a loop that returned too early would lose writes (and
// trip the thread sanitizer).
TEST(ThreadPool, ManyShortLoopsLoseNothing) {
  ThreadPool pool(4);
  std::vector<std::int64_t> data(16);
  for (std::int64_t round = 0; round < 20000; ++round) {
    const std::int64_t count = 1 + round % 16;
    pool.parallel_for(count, 1, [&](std::int64_t begin, std::int64_t, int) {
      data[static_cast<std::size_t>(begin)] = round;
    });
    for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(data[static_cast<std::size_t>(i)], round);
  }
}

TEST(ThreadPool, CallsFromSeveralThreadsTakeTurns) {
  ThreadPool pool(3);
  std::atomic<std::int64_t> total{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 3; ++c) {
    callers.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        pool.parallel_for(10, 2, [&](std::int64_t begin, std::int64_t end, int) { total += end - begin; });
      }
    });
  }
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(total.load(), 3 * 500 * 10);
}

}  // namespace
}  // namespace deepinfer
