// What a run reports while it runs and at its end. Counters are atomic; the text is made by one thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "deepinfer/engine.h"

namespace deepinfer {

/// Seconds of work by stage. Request stages are summed over requests that overlap, so they can exceed the
/// run's time.
struct StageSeconds {
  double read = 0;      ///< reading and parsing the input
  double tokenise = 0;  ///< checking and encoding requests
  double queue = 0;     ///< requests waiting for the engine
  double prefill = 0;   ///< from the first row of a request to its first token
  double decode = 0;    ///< from its first token to its last
  double write = 0;     ///< rendering, writing and syncing results
};

/// The outcome of a run.
struct BatchReport {
  std::int64_t ok_count = 0;
  std::int64_t failed_count = 0;          ///< lines answered by an error line, in this run
  std::int64_t skipped_count = 0;         ///< had their result before this run
  std::int64_t skipped_failed_count = 0;  ///< of these, error lines
  std::int64_t dropped_count = 0;         ///< half-written results of a crash, computed again
  std::int64_t tokens_in = 0;
  std::int64_t tokens_out = 0;
  double seconds = 0;
  double seconds_to_first_token = 0;  ///< from the start of the run; 0 when there was none
  StageSeconds stages;
  std::vector<double> tokens_per_second;  ///< in and out together, in each tenth of the run's time
  bool interrupted = false;               ///< a signal stopped it; the rest is left for a resume
};

/// Several lines for a person.
std::string format_report(const BatchReport& report, const EngineStats& engine);

/// Shared by the threads of a run.
struct BatchCounters {
  std::atomic<std::int64_t> ok{0}, failed{0}, skipped{0};
  std::atomic<std::int64_t> in_flight{0};
  std::atomic<std::int64_t> lines_read{0};
  std::atomic<std::int64_t> bytes_finished{0};  ///< of input lines that are written
  std::atomic<std::int64_t> bytes_skipped{0};   ///< of lines that had their result before
  std::atomic<bool> input_ended{false};
  std::atomic<std::int64_t> tokens_in{0}, tokens_out{0};
  std::atomic<std::int64_t> read_ns{0}, tokenise_ns{0}, write_ns{0};
  std::atomic<std::int64_t> queue_us{0}, prefill_us{0}, decode_us{0};
};

/// Speeds and remaining time. One thread.
class ProgressMeter {
 public:
  using Clock = std::chrono::steady_clock;
  /// `total_bytes` of the input, -1 when unknown.
  ProgressMeter(const BatchCounters& counters, std::int64_t total_bytes);

  /// Call at least once a second; keeps a bounded history.
  void sample(const EngineStats& engine);
  /// "1,024 done, 3 failed of 100,000 | in 5,120 tok/s, out 640 tok/s | 12 %, 3 min 20 s left".
  std::string line(const EngineStats& engine) const;
  double seconds() const;
  std::vector<double> tenths() const;

 private:
  struct Sample {
    double seconds;
    std::int64_t tokens_in, tokens_out;
  };
  const BatchCounters& counters_;
  std::int64_t total_bytes_;
  Clock::time_point start_ = Clock::now();
  std::vector<Sample> history_;  // thinned to every other one when it grows
  std::size_t stride_ = 1, since_kept_ = 0;
  std::vector<Sample> recent_;  // about the last ten seconds
};

/// "12,345".
std::string with_commas(std::int64_t value);
/// "2 h 3 min", "3 min 20 s", "4.2 s".
std::string format_duration(double seconds);

}  // namespace deepinfer
