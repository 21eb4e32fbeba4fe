#include "grammar/grammar_cache.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer::grammar {

using Clock = std::chrono::steady_clock;

struct GrammarCache::Ticket::State {
  mutable std::mutex mutex;
  mutable std::condition_variable done;
  std::optional<Result<GrammarPtr>> result;
  CancelFlag cancel{false};
  std::atomic<bool> past_deadline{false};
  Clock::time_point started;  // guarded by the cache's mutex
};

bool GrammarCache::Ticket::ready() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->result.has_value();
}

std::optional<Result<GrammarPtr>> GrammarCache::Ticket::wait_for(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(state_->mutex);
  state_->done.wait_for(lock, timeout, [this] { return state_->result.has_value(); });
  return state_->result;
}

Result<GrammarPtr> GrammarCache::Ticket::get() const {
  std::unique_lock lock(state_->mutex);
  state_->done.wait(lock, [this] { return state_->result.has_value(); });
  return *state_->result;
}

GrammarCache::GrammarCache(Options options) : options_(options) {
  for (std::uint32_t i = 0; i < std::max(1u, options_.workers); ++i)
    workers_.emplace_back([this] { work(); });
  watcher_ = std::thread([this] { watch(); });
}

GrammarCache::~GrammarCache() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    for (const auto& state : running_) state->cancel = true;
  }
  work_ready_.notify_all();
  watch_ready_.notify_all();
  watcher_.join();  // first: it may add workers
  for (std::thread& t : workers_) t.join();
  for (const Job& job : queue_) {
    const std::scoped_lock lock(job.state->mutex);
    job.state->result = Error{ErrorCode::kCancelled, "the grammar cache was closed", {}};
    job.state->done.notify_all();
  }
}

GrammarCache::Ticket GrammarCache::request(const std::string& key, Build build) {
  Ticket ticket;
  const std::scoped_lock lock(mutex_);
  auto it = kept_.find(key);
  if (it != kept_.end() && it->second.state->result->value()->exhausted()) {
    kept_bytes_ -= it->second.bytes;
    ages_.erase(it->second.age);
    kept_.erase(it);
    it = kept_.end();
    ++stats_.evictions;
  }
  if (it != kept_.end()) {
    ++stats_.hits;
    ages_.splice(ages_.begin(), ages_, it->second.age);
    ticket.state_ = it->second.state;
    return ticket;
  }
  std::weak_ptr<Ticket::State>& pending = pending_[key];
  ticket.state_ = pending.lock();
  if (ticket.state_ != nullptr) {
    ++stats_.hits;
    return ticket;
  }
  ticket.state_ = std::make_shared<Ticket::State>();
  pending = ticket.state_;
  queue_.push_back({ticket.state_, std::move(build), key});
  work_ready_.notify_one();
  watch_ready_.notify_one();
  return ticket;
}

void GrammarCache::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_ready_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    Job job = std::move(queue_.front());
    queue_.pop_front();
    if (job.state.use_count() == 1) {  // nobody waits for it any more
      pending_.erase(job.key);
      continue;
    }
    job.state->started = Clock::now();
    running_.push_back(job.state);
    ++stats_.builds;
    lock.unlock();
    watch_ready_.notify_one();
    Result<GrammarPtr> result = job.build(job.state->cancel);
    if (!result.ok() && result.error().code == ErrorCode::kCancelled && job.state->past_deadline)
      result = Error{ErrorCode::kDeadline,
                     fmt::format("compiling the grammar took longer than {} ms", options_.deadline.count()),
                     {}};
    const bool built = result.ok();
    lock.lock();
    // Published only after the key is free again: whoever saw this result and asks anew gets a new build or
    // the kept grammar.
    std::erase(running_, job.state);
    pending_.erase(job.key);
    {
      const std::scoped_lock state_lock(job.state->mutex);
      job.state->result = std::move(result);
    }
    job.state->done.notify_all();
    if (built) {
      keep(job.key, job.state);
    } else {
      ++stats_.failures;  // not kept: a deadline may have been bad luck, and errors are cheap to find again
    }
  }
}

void GrammarCache::keep(const std::string& key, const std::shared_ptr<Ticket::State>& state) {
  ages_.push_front(key);
  Kept& kept = kept_[key];
  kept.state = state;
  kept.age = ages_.begin();
  // Grammars grow while they are used, so all sizes are read again whenever one is added.
  kept_bytes_ = 0;
  for (auto& [k, entry] : kept_) {
    entry.bytes = entry.state->result->value()->memory_bytes() + k.size();
    kept_bytes_ += entry.bytes;
  }
  while (kept_bytes_ > options_.budget_bytes && ages_.size() > 1) {
    const auto oldest = kept_.find(ages_.back());
    kept_bytes_ -= oldest->second.bytes;
    kept_.erase(oldest);
    ages_.pop_back();
    ++stats_.evictions;
  }
}

// Cancels builds past their deadline and adds workers while slow builds keep all of them busy.
void GrammarCache::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (running_.empty()) {
      watch_ready_.wait(lock, [this] { return stopping_ || !running_.empty(); });
    } else {
      watch_ready_.wait_for(
          lock, std::min(options_.slow_after, options_.deadline) / 2 + std::chrono::milliseconds(1));
    }
    const Clock::time_point now = Clock::now();
    std::size_t slow = 0;
    for (const auto& state : running_) {
      if (now - state->started > options_.slow_after) ++slow;
      if (now - state->started > options_.deadline) {
        state->past_deadline = true;
        state->cancel = true;
      }
    }
    if (!stopping_ && !queue_.empty() && slow >= workers_.size() && workers_.size() < options_.max_workers)
      workers_.emplace_back([this] { work(); });
  }
}

GrammarCache::Stats GrammarCache::stats() const {
  const std::scoped_lock lock(mutex_);
  Stats s = stats_;
  s.grammars = kept_.size();
  s.bytes = kept_bytes_;
  s.workers = static_cast<std::uint32_t>(workers_.size());
  return s;
}

}  // namespace deepinfer::grammar
