// A line on its way from the reader to the writer, the queues it travels through, and the text it ends as.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "api/openai_request.h"
#include "api/prompt_codec.h"
#include "base/result.h"
#include "batch/batch_line.h"
#include "deepinfer/types.h"

namespace deepinfer {

/// Owned by one thread at a time; handed on through the queues and the
// engine's sink.
struct Job {
  std::int64_t sequence = 0;  // 0, 1, … over the admitted lines
  std::int64_t line = 0;      // of the input, from 1
  std::int64_t size_bytes = 0;
  std::uint32_t input_hash = 0;
  std::optional<std::string> id;  // as the line names itself
  bool owns_id = false;
  std::optional<BatchRequest> body;   // until a worker took it apart
  std::optional<ApiRequest> request;  // without its text once encoded
  std::optional<Error> error;         // why it was never submitted
  bool abandoned = false;             // cut off by the end of the run: left for a resume
  RequestResult result;

  std::string name() const { return id ? *id : fmt::format("{}", line); }
};
using JobPtr = std::unique_ptr<Job>;

/// A queue between threads. Its length is bounded by the window.
class JobQueue {
 public:
  void push(JobPtr job) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    ready_.notify_one();
  }
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }
  /// Null when the queue is closed and empty, or after `deadline`.
  JobPtr pop(std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max()) {
    std::unique_lock lock(mutex_);
    const auto available = [&] { return !jobs_.empty() || closed_; };
    if (deadline == std::chrono::steady_clock::time_point::max()) {
      ready_.wait(lock, available);
    } else {
      ready_.wait_until(lock, deadline, available);
    }
    if (jobs_.empty()) return nullptr;
    JobPtr job = std::move(jobs_.front());
    jobs_.pop_front();
    return job;
  }
  bool finished() const {
    const std::lock_guard lock(mutex_);
    return closed_ && jobs_.empty();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<JobPtr> jobs_;
  bool closed_ = false;
};

/// What all result lines of a run share.
struct ResultEnvelope {
  std::string model;
  std::int64_t created = 0;  ///< Unix seconds
  bool run_details = false;
};

/// {"id": …, "custom_id": …, "response": …, "error": …}: one line of the output, without its line end. The
/// same job gives the same text.
std::string result_line(const Job& job, const PromptCodec& codec, const ResultEnvelope& envelope);

}  // namespace deepinfer
