// The engine as its callers see it: requests in, deltas and one result per request out. Front ends (batch,
// chat, eval, server) and their tests need this header alone; the implementation over a Model and a Tokenizer
// is engine/engine.h. Narrow on purpose: encoding of prompts, files and retries belong to the caller.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "deepinfer/types.h"

namespace deepinfer {

/// Limits and habits of one engine. 0 means "what the model and its cache allow" unless said otherwise.
struct EngineOptions {
  std::int64_t max_rows = 0;  ///< rows of one step: the token budget shared by decode and chunked prefill
  std::int64_t max_chunk_rows = 0;            ///< prefill rows of one sequence in one step
  std::int64_t max_running = 0;               ///< sequences that hold a cache slot at once
  std::int64_t max_context = 0;               ///< prompt + answer tokens of one sequence
  std::int64_t max_cache_blocks = 0;          ///< cache blocks used of those the model was opened with
  std::int64_t logits_tile_bytes = 64 << 20;  ///< fp32 logits held at once; at least one row is always held
  std::int64_t max_stop_bytes = 65536;        ///< stop strings of one request, together
  std::int64_t grammar_threads = 1;  ///< workers that compile StructuredOutput beside the step thread
  std::uint64_t seed = 0;            ///< with the request id, the seed of requests that bring none
  double watchdog_seconds = 0;       ///< no progress with work at hand for that long is a stall; 0 = never
  /// Called once on the watchdog's thread with a report of every queue. Without it the report goes to stderr
  /// and the process exits with kWatchdogExitCode: a hung device call cannot be ended in any other way.
  std::function<void(const std::string& report)> on_stall = nullptr;
  bool manual = false;  ///< no thread of its own: the owner calls Engine::step() (tests, simulations)
};

/// Exit status of a process ended by the watchdog.
inline constexpr int kWatchdogExitCode = 75;

/// Names one submitted request within its engine; never reused.
using RequestHandle = std::uint64_t;

/// Where the events of one request go. Both run on the engine's thread and hold up every request while they
/// run: hand the value over and return. They must not throw and must not call drain(); submit() and cancel()
/// are fine.
struct Sink {
  /// Optional. New tokens and text of one answer, in order; the texts joined are Answer::text.
  std::function<void(Delta&&)> on_delta;
  /// Exactly once per request, also for refused, failed and cancelled ones; nothing comes after it.
  std::function<void(RequestResult&&)> on_done;
};

/// A moment of the engine; counters only grow.
struct EngineStats {
  // Now
  std::int64_t preparing = 0;  ///< sequences whose grammar is being compiled
  std::int64_t waiting = 0;    ///< sequences without a slot
  std::int64_t running = 0;    ///< sequences with a slot
  std::int64_t blocks_used = 0, blocks_total = 0;
  std::int64_t cache_bytes_used = 0, cache_bytes_total = 0;  ///< 0 when the model does not say
  std::int64_t last_step_rows = 0, last_step_sequences = 0;
  std::int64_t max_context = 0;  ///< the effective limit
  // Since the start
  std::int64_t steps = 0;
  std::int64_t requests_submitted = 0, requests_done = 0;  ///< done counts every outcome
  std::int64_t requests_failed = 0, requests_cancelled = 0;
  std::int64_t tokens_in = 0;   ///< prompt tokens of admitted answers (an answer of n counts its own prompt)
  std::int64_t tokens_out = 0;  ///< generated tokens
  std::int64_t rows = 0;        ///< rows computed
  std::int64_t rows_recomputed = 0;  ///< of these, rows computed before and lost to preemption or retries
  std::int64_t preemptions = 0;
  std::int64_t step_errors = 0;                 ///< forward calls that failed
  std::map<std::string, double> stage_seconds;  ///< plan, forward, logits, sample, grammar, text, idle
};

/// All methods may be called from any thread unless the line says otherwise.
class EngineInterface {
 public:
  virtual ~EngineInterface() = default;
  /// Queues a request; never blocks on the model. Every problem, also an invalid request, arrives in on_done.
  /// A million queued requests are fine: a waiting one costs its own bytes and a queue node.
  virtual RequestHandle submit(Request request, Sink sink) = 0;
  /// Ends a request with error_code "cancelled" and the answers so far; no effect on finished or unknown
  /// ones.
  virtual void cancel(RequestHandle handle) = 0;
  /// Returns at a moment when no request is open. Not from a sink.
  virtual void drain() = 0;
  virtual EngineStats stats() const = 0;
  /// The most tokens (prompt + answer) one sequence may have.
  virtual std::int64_t max_context() const = 0;
};

}  // namespace deepinfer
