// Which rows the next step computes. Owns the two queues and the cache pools; knows nothing of tokens or
// models.
//
// A step is a map sequence -> row count. Rank is priority first, then arrival. Rules, in the order they
// apply:
//   1. a sequence under suspicion (its step failed) runs alone, so that a second failure names the culprit;
//   2. decode rows first, in rank order: nobody's next token waits for somebody's prompt;
//   3. what is left of the row budget goes to unfinished prefills, in rank order, as chunks;
//   4. then to the head of the queue, if a slot and the blocks of all its known tokens are free. The head
//   alone may
//      be admitted: a large request is not overtaken for ever by small ones. A head of higher priority
//      displaces running sequences of lower priority.
// When blocks run out, the lowest-ranked running sequence loses its cache and is queued again under its old
// rank (preemption by recomputation; the bits of its rows do not change). A sequence only ever displaces
// lower ranks, so the highest rank always advances, and with finitely many requests everybody does. Within
// one priority nobody starves.
//
// Invariant: running sequences hold a slot, others hold nothing. Cost: O(running + admitted * log waiting) a
// step. The engine's thread is the only caller.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "kv/cache_pools.h"

namespace deepinfer {

/// What the scheduler knows of one sequence. Embedded in the engine's own record, which outlives its stay
/// here.
struct SchedSeq {
  enum class State { kOutside, kWaiting, kRunning };

  // Set by the engine before enqueue()
  std::int32_t priority = 0;  ///< higher first
  std::uint64_t arrival = 0;  ///< unique; lower first
  // Kept by the engine between steps
  std::int64_t length = 0;    ///< tokens known: prompt and answer so far
  std::int64_t computed = 0;  ///< of these, rows whose state is in the cache
  bool alone = false;         ///< run by itself next time
  // Kept by the scheduler
  State state = State::kOutside;
  SlotId slot = -1;
  BlockTable blocks;
  std::int64_t planned_rows = 0;  ///< in the plan under construction
  std::int32_t preemptions = 0;

  std::int64_t missing_rows() const { return length - computed; }
};

struct SchedulerLimits {
  std::int64_t max_running = 1;
  std::int64_t max_chunk_rows = 1;  ///< of one sequence in one step
};

/// One step's work. Not changed once made.
struct StepPlan {
  struct Item {
    SchedSeq* seq;
    std::int64_t rows;
  };
  std::vector<Item> items;  ///< in rank order within each of the rules 2-4
  std::int64_t rows = 0;
  std::int64_t preempted = 0;
};

class Scheduler {
 public:
  Scheduler(CachePools pools, SchedulerLimits limits);

  void enqueue(SchedSeq& seq);
  /// Takes a sequence out, whatever its state, and frees what it holds.
  void remove(SchedSeq& seq);
  /// The next step, of at most `max_rows` rows. Empty when nothing is queued, or when the pools refuse for
  /// now.
  StepPlan plan(std::int64_t max_rows);

  const std::vector<SchedSeq*>& running() const { return running_; }  ///< in rank order
  std::int64_t waiting_count() const { return static_cast<std::int64_t>(waiting_.size()); }
  /// The head of the queue, at most `count` long.
  std::vector<const SchedSeq*> first_waiting(std::size_t count) const;
  /// The highest rank of all, or nullptr.
  SchedSeq* first() const;
  CachePools& pools() { return pools_; }
  const CachePools& pools() const { return pools_; }
  /// Checks every invariant (O(everything)); for tests.
  void check() const;

 private:
  struct RankLess {
    bool operator()(const SchedSeq* a, const SchedSeq* b) const {
      return a->priority != b->priority ? a->priority > b->priority : a->arrival < b->arrival;
    }
  };

  bool give_rows(std::size_t running_index, std::int64_t rows);
  bool admit_head();
  void preempt(std::size_t running_index);
  std::int64_t blocks_wanted(const SchedSeq& seq) const;

  CachePools pools_;
  SchedulerLimits limits_;
  std::vector<SchedSeq*> running_;
  std::set<SchedSeq*, RankLess> waiting_;
  std::int64_t rows_left_ = 0;  // of the plan under construction
  std::int64_t preempted_ = 0;
};

}  // namespace deepinfer
