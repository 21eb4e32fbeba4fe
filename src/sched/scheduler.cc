#include "sched/scheduler.h"

#include <algorithm>
#include <utility>

namespace deepinfer {

Scheduler::Scheduler(CachePools pools, SchedulerLimits limits) : pools_(std::move(pools)), limits_(limits) {
  DI_CHECK(limits_.max_running >= 1 && limits_.max_chunk_rows >= 1);
}

void Scheduler::enqueue(SchedSeq& seq) {
  DI_CHECK(seq.state == SchedSeq::State::kOutside && seq.blocks.empty() && seq.slot < 0);
  DI_CHECK(seq.computed == 0 && seq.length >= 1);
  seq.state = SchedSeq::State::kWaiting;
  DI_CHECK(waiting_.insert(&seq).second, "two sequences with arrival number ", seq.arrival);
}

void Scheduler::remove(SchedSeq& seq) {
  if (seq.state == SchedSeq::State::kWaiting) waiting_.erase(&seq);
  if (seq.state == SchedSeq::State::kRunning) {
    running_.erase(std::find(running_.begin(), running_.end(), &seq));
    pools_.shrink(seq.blocks, 0);
    pools_.give_slot(std::exchange(seq.slot, -1));
  }
  seq.state = SchedSeq::State::kOutside;
}

SchedSeq* Scheduler::first() const {
  SchedSeq* best = running_.empty() ? nullptr : running_.front();
  if (!waiting_.empty() && (best == nullptr || RankLess{}(*waiting_.begin(), best))) best = *waiting_.begin();
  return best;
}

std::vector<const SchedSeq*> Scheduler::first_waiting(std::size_t count) const {
  std::vector<const SchedSeq*> out;
  for (auto it = waiting_.begin(); it != waiting_.end() && out.size() < count; ++it) out.push_back(*it);
  return out;
}

StepPlan Scheduler::plan(std::int64_t max_rows) {
  rows_left_ = max_rows;
  preempted_ = 0;
  for (SchedSeq* seq : running_) seq->planned_rows = 0;
  std::vector<SchedSeq*> order;  // in which rows were given; preemption may empty an entry again

  const auto suspect = std::find_if(running_.begin(), running_.end(), [](auto* seq) { return seq->alone; });
  if (suspect != running_.end()) {
    if (give_rows(static_cast<std::size_t>(suspect - running_.begin()), (*suspect)->missing_rows()))
      order.push_back(*suspect);
  } else {
    for (const bool decode : {true, false}) {
      for (std::size_t i = 0; i < running_.size() && rows_left_ > 0; ++i) {
        SchedSeq* seq = running_[i];
        if ((seq->missing_rows() == 1) == decode && seq->planned_rows == 0 &&
            give_rows(i, seq->missing_rows())) {
          order.push_back(seq);
        }
      }
    }
    while (rows_left_ > 0 && !waiting_.empty()) {
      SchedSeq* head = *waiting_.begin();
      if (!admit_head()) break;
      const auto at = std::find(running_.begin(), running_.end(), head);
      if (give_rows(static_cast<std::size_t>(at - running_.begin()), head->missing_rows()))
        order.push_back(head);
    }
  }

  StepPlan plan;
  plan.preempted = preempted_;
  for (SchedSeq* seq : order) {
    if (seq->planned_rows == 0) continue;
    plan.items.push_back({seq, seq->planned_rows});
    plan.rows += std::exchange(seq->planned_rows, 0);
  }
  return plan;
}

/// Gives up to `rows` rows to a running sequence, displacing lower ranks for its blocks. False if it gets
/// none.
bool Scheduler::give_rows(std::size_t running_index, std::int64_t rows) {
  SchedSeq& seq = *running_[running_index];
  rows = std::min({rows, rows_left_, limits_.max_chunk_rows});
  const auto reachable = [&] {  // positions its own and all free blocks cover
    return (static_cast<std::int64_t>(seq.blocks.size()) + pools_.free_blocks()) * kBlockTokens;
  };
  while (reachable() <= seq.computed && running_index + 1 < running_.size()) preempt(running_.size() - 1);
  rows = std::min(rows, reachable() - seq.computed);
  if (rows <= 0 || !pools_.grow(seq.blocks, seq.computed + rows)) return false;
  seq.planned_rows = rows;
  rows_left_ -= rows;
  return true;
}

void Scheduler::preempt(std::size_t running_index) {
  SchedSeq* victim = running_[running_index];
  rows_left_ += std::exchange(victim->planned_rows, 0);
  remove(*victim);
  victim->computed = 0;
  victim->alone = false;
  ++victim->preemptions;
  ++preempted_;
  enqueue(*victim);
}

/// Blocks for all tokens known and the next one.
std::int64_t Scheduler::blocks_wanted(const SchedSeq& seq) const {
  return std::min(blocks_for(seq.length + 1), pools_.block_count());
}

/// Makes the head of the queue run, if all of its known tokens fit beside what the running sequences still
/// want.
bool Scheduler::admit_head() {
  SchedSeq* head = *waiting_.begin();
  std::int64_t blocks = pools_.free_blocks();
  for (const SchedSeq* seq : running_) {
    blocks -= std::max<std::int64_t>(0, blocks_wanted(*seq) - static_cast<std::int64_t>(seq->blocks.size()));
  }
  std::int64_t slots = pools_.free_slots();
  std::size_t keep = running_.size();  // running_[keep ..] would be displaced
  const auto fits = [&] {
    return slots > 0 && static_cast<std::int64_t>(keep) < limits_.max_running &&
           (blocks >= blocks_wanted(*head) || keep == 0);
  };
  while (!fits() && keep > 0 && running_[keep - 1]->priority < head->priority) {
    const SchedSeq* victim = running_[--keep];
    blocks += std::max(blocks_wanted(*victim), static_cast<std::int64_t>(victim->blocks.size()));
    ++slots;
  }
  if (!fits()) return false;
  while (running_.size() > keep) preempt(running_.size() - 1);
  const std::optional<SlotId> slot = pools_.take_slot();
  if (!slot) return false;
  waiting_.erase(head);
  head->state = SchedSeq::State::kRunning;
  head->slot = *slot;
  running_.insert(std::upper_bound(running_.begin(), running_.end(), head, RankLess{}), head);
  return true;
}

void Scheduler::check() const {
  std::int64_t blocks = 0;
  std::vector<bool> seen(static_cast<std::size_t>(pools_.block_count()), false);
  for (const SchedSeq* seq : running_) {
    DI_CHECK(seq->state == SchedSeq::State::kRunning && seq->slot >= 0);
    DI_CHECK(seq->computed >= 0 && seq->computed <= seq->length && seq->length >= 1);
    DI_CHECK(static_cast<std::int64_t>(seq->blocks.size()) >= blocks_for(seq->computed));
    for (const BlockId block : seq->blocks) {
      DI_CHECK(!seen[static_cast<std::size_t>(block)], "block ", block, " has two holders");
      seen[static_cast<std::size_t>(block)] = true;
    }
    blocks += static_cast<std::int64_t>(seq->blocks.size());
  }
  DI_CHECK(std::is_sorted(running_.begin(), running_.end(), RankLess{}));
  DI_CHECK(blocks == pools_.used_blocks(), "leaked blocks: ", pools_.used_blocks() - blocks);
  DI_CHECK(static_cast<std::int64_t>(running_.size()) == pools_.used_slots());
  for (const SchedSeq* seq : waiting_) {
    DI_CHECK(seq->state == SchedSeq::State::kWaiting && seq->slot < 0 && seq->blocks.empty() &&
             seq->computed == 0);
  }
}

}  // namespace deepinfer
