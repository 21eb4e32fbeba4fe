// The scheduler's rules, one a test. That they hold together under load and faults is shown by the engine's
// simulation.
#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include <deque>

namespace deepinfer {
namespace {

class SchedulerTest : public ::testing::Test {
 protected:
  void make(std::int64_t blocks, std::int64_t slots, SchedulerLimits limits) {
    scheduler_ = std::make_unique<Scheduler>(CachePools({blocks, slots, 0, 0}, 0, 0), limits);
  }
  SchedSeq& add(std::int64_t length, std::int32_t priority = 0) {
    SchedSeq& seq = sequences_.emplace_back();
    seq.length = length;
    seq.priority = priority;
    seq.arrival = sequences_.size();
    scheduler_->enqueue(seq);
    return seq;
  }
  /// Plans, checks, and plays the model: every planned row is computed, a sequence that is complete gets a
  /// token.
  std::vector<std::pair<std::int64_t, std::int64_t>> step(std::int64_t rows) {  // (arrival, rows)
    const StepPlan plan = scheduler_->plan(rows);
    scheduler_->check();
    std::vector<std::pair<std::int64_t, std::int64_t>> out;
    std::int64_t sum = 0;
    for (const StepPlan::Item& item : plan.items) {
      out.emplace_back(item.seq->arrival, item.rows);
      sum += item.rows;
      item.seq->computed += item.rows;
      if (item.seq->computed == item.seq->length) ++item.seq->length;
    }
    EXPECT_EQ(sum, plan.rows);
    EXPECT_LE(sum, rows);
    return out;
  }
  using Plan = std::vector<std::pair<std::int64_t, std::int64_t>>;

  std::unique_ptr<Scheduler> scheduler_;
  std::deque<SchedSeq> sequences_;
};

TEST_F(SchedulerTest, DecodeRowsComeFirstAndPrefillFillsTheBudget) {
  make(16, 8, {8, 1000});
  add(3);
  EXPECT_EQ(step(10), (Plan{{1, 3}}));
  add(25);
  EXPECT_EQ(step(10), (Plan{{1, 1}, {2, 9}}));
  add(2);
  EXPECT_EQ(step(10), (Plan{{1, 1}, {2, 9}})) << "in turn: the second prompt is not overtaken";
  EXPECT_EQ(step(10), (Plan{{1, 1}, {2, 7}, {3, 2}}));
  EXPECT_EQ(step(10), (Plan{{1, 1}, {2, 1}, {3, 1}}));
}

TEST_F(SchedulerTest, ChunksAreLimitedPerSequence) {
  make(16, 8, {8, 4});
  add(10);
  add(10);
  EXPECT_EQ(step(100), (Plan{{1, 4}, {2, 4}}));
}

TEST_F(SchedulerTest, TheHeadOfTheQueueIsNotOvertaken) {
  make(4, 8, {8, 10000});
  add(3 * kBlockTokens - 1);
  add(2 * kBlockTokens);  // does not fit beside the first
  add(1);                 // would
  EXPECT_EQ(step(10000), (Plan{{1, 3 * kBlockTokens - 1}}));
  EXPECT_EQ(step(10000), (Plan{{1, 1}}));
  scheduler_->remove(sequences_[0]);
  EXPECT_EQ(step(10000), (Plan{{2, 2 * kBlockTokens}, {3, 1}}));
}

TEST_F(SchedulerTest, TheLowestRankLosesItsCacheWhenBlocksRunOut) {
  make(2, 8, {8, 10000});
  SchedSeq& first = add(kBlockTokens - 2);
  SchedSeq& second = add(10);
  step(10000);
  EXPECT_EQ(second.state, SchedSeq::State::kRunning);
  step(10000);
  step(10000);
  step(10000);  // the first sequence grows into a second block
  EXPECT_EQ(second.state, SchedSeq::State::kWaiting);
  EXPECT_EQ(second.computed, 0);
  EXPECT_EQ(second.preemptions, 1);
  EXPECT_EQ(first.blocks.size(), 2u);
  scheduler_->remove(first);
  EXPECT_EQ(step(10000), (Plan{{2, 13}})) << "all its tokens again, answer included";
}

TEST_F(SchedulerTest, AHigherPriorityDisplacesALowerOneButNotItsEqual) {
  make(8, 1, {1, 100});
  add(5, 0);
  step(100);
  add(5, 0);
  EXPECT_EQ(step(100), (Plan{{1, 1}}));
  add(5, 1);
  EXPECT_EQ(step(100), (Plan{{3, 5}}));
  scheduler_->remove(sequences_[2]);
  EXPECT_EQ(step(100), (Plan{{1, 7}})) << "back in its old place, before the one that came later";
}

TEST_F(SchedulerTest, ASuspectRunsAlone) {
  make(8, 4, {4, 100});
  add(5);
  SchedSeq& suspect = add(6);
  step(100);
  suspect.alone = true;
  EXPECT_EQ(step(100), (Plan{{2, 1}}));
  suspect.alone = false;
  EXPECT_EQ(step(100), (Plan{{1, 1}, {2, 1}}));
}

TEST(CachePools, GiveAllOrNothingAndNameEachIdOnce) {
  CachePools pools({4, 2, 25600, 7}, 3, 0);
  EXPECT_EQ(pools.block_count(), 3);
  EXPECT_EQ(pools.bytes_per_token(), 100.0);
  BlockTable a, b;
  EXPECT_TRUE(pools.grow(a, 2 * kBlockTokens));
  EXPECT_FALSE(pools.grow(b, 2 * kBlockTokens));
  EXPECT_TRUE(b.empty());
  EXPECT_TRUE(pools.grow(b, 1));
  EXPECT_TRUE(pools.grow(b, kBlockTokens)) << "already covered";
  EXPECT_EQ(pools.free_blocks(), 0);
  EXPECT_EQ(pools.bytes_used(), 3 * 25600);
  pools.shrink(a, kBlockTokens + 1);
  EXPECT_EQ(a.size(), 2u);
  pools.shrink(a, kBlockTokens);
  EXPECT_EQ(a.size(), 1u);
  EXPECT_NE(a[0], b[0]);
}

TEST(CachePoolsDeathTest, FreeingTwiceIsOurBug) {
  IdPool pool(2);
  const std::int32_t id = *pool.take();
  pool.give(id);
  EXPECT_DEATH(pool.give(id), "is not held");
}

}  // namespace
}  // namespace deepinfer
