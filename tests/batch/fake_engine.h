// An engine without a model: echoes the prompt after a delay that depends on the request, so results come out
// of order. One thread, as the real one.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/fake_codec.h"
#include "deepinfer/engine.h"

namespace deepinfer::testing {

struct FakeEngineOptions {
  std::int64_t max_delay_us = 0;  // each request takes 0 .. this long
  std::int64_t max_context = 4096;
  std::int64_t fail_every = 0;  // every n-th id (by hash) fails; 0 = none
  std::uint64_t seed = 1;
};

class FakeEngine : public EngineInterface {
 public:
  using Clock = std::chrono::steady_clock;

  explicit FakeEngine(FakeEngineOptions options) : options_(options), thread_([this] { run(); }) {}
  ~FakeEngine() override {
    {
      const std::lock_guard lock(mutex_);
      quit_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  RequestHandle submit(Request request, Sink sink) override {
    const std::uint64_t mixed = mix(std::hash<std::string>()(request.id) ^ options_.seed);
    const auto delay = std::chrono::microseconds(
        options_.max_delay_us == 0
            ? 0
            : static_cast<std::int64_t>(mixed % static_cast<std::uint64_t>(options_.max_delay_us)));
    const std::lock_guard lock(mutex_);
    const RequestHandle handle = ++last_handle_;
    most_queued_ = std::max(most_queued_, static_cast<std::int64_t>(waiting_.size()) + 1);
    waiting_.emplace(std::pair(Clock::now() + delay, handle),
                     Entry{std::move(request), std::move(sink), Clock::now()});
    stats_.requests_submitted += 1;
    changed_.notify_all();
    return handle;
  }

  void cancel(RequestHandle handle) override {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(handle);
    changed_.notify_all();
  }

  void drain() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stats_.requests_done == stats_.requests_submitted; });
  }
  EngineStats stats() const override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  std::int64_t max_context() const override { return options_.max_context; }
  std::int64_t most_queued() const {
    const std::lock_guard lock(mutex_);
    return most_queued_;
  }

 private:
  struct Entry {
    Request request;
    Sink sink;
    Clock::time_point submitted;
  };

  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15u;
    return x ^ (x >> 29);
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (!quit_) {
      if (!cancelled_.empty()) {
        const RequestHandle handle = cancelled_.back();
        cancelled_.pop_back();
        for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
          if (it->first.second == handle) {
            finish(lock, it, true);
            break;
          }
        }
        continue;
      }
      if (waiting_.empty()) {
        changed_.wait(lock);
      } else if (waiting_.begin()->first.first > Clock::now()) {
        changed_.wait_until(lock, waiting_.begin()->first.first);
      } else {
        finish(lock, waiting_.begin(), false);
      }
    }
  }

  using Waiting = std::map<std::pair<Clock::time_point, RequestHandle>, Entry>;

  void finish(std::unique_lock<std::mutex>& lock, Waiting::iterator it, bool cancel) {
    Entry entry = std::move(it->second);
    waiting_.erase(it);
    lock.unlock();
    entry.sink.on_done(answer(entry, cancel));
    lock.lock();
    stats_.requests_done += 1;
    stats_.tokens_in += static_cast<std::int64_t>(entry.request.prompt.size());
    stats_.tokens_out += static_cast<std::int64_t>(entry.request.prompt.size());
    changed_.notify_all();
  }

  RequestResult answer(const Entry& entry, bool cancel) const {
    const Request& request = entry.request;
    RequestResult result;
    result.id = request.id;
    result.seed = request.sampling.seed.value_or(mix(std::hash<std::string>()(request.id)));
    if (cancel) {
      result.error_code = "cancelled";
      result.error = "cancelled";
      return result;
    }
    if (options_.fail_every > 0 &&
        mix(std::hash<std::string>()(request.id)) % static_cast<std::uint64_t>(options_.fail_every) == 0) {
      result.error_code = "out_of_memory";
      result.error = "injected";
      return result;
    }
    for (std::int32_t i = 0; i < request.sampling.n; ++i) {
      Answer one;
      one.index = i;
      one.tokens = request.prompt;
      for (const TokenId id : request.prompt) one.text += codec_.token_bytes(id);
      result.answers.push_back(std::move(one));
    }
    result.usage.prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
    result.usage.completion_tokens = static_cast<std::int64_t>(request.prompt.size());
    const double seconds = std::chrono::duration<double>(Clock::now() - entry.submitted).count();
    result.timing = {.queued = 0, .first_token = seconds / 2, .total = seconds, .preemptions = 0};
    return result;
  }

  FakeEngineOptions options_;
  FakeCodec codec_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Waiting waiting_;
  std::vector<RequestHandle> cancelled_;
  RequestHandle last_handle_ = 0;
  std::int64_t most_queued_ = 0;
  EngineStats stats_;
  bool quit_ = false;
  std::thread thread_;
};

}  // namespace deepinfer::testing
