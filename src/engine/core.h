// The step loop without threads: plan, forward, sample, bookkeeping. One thread at a time calls an
// EngineCore; the class Engine (engine.h) puts the thread, the inbox and the watchdog around it.
//
// A step either advances every sequence it planned or, when the model reports an error, none that it could
// not finish; since rows are addressed by position, running them again is harmless. Whose step failed is run
// again, alone: who fails then is the culprit and gets the error, the others go on. Too little memory halves
// the plan until it fits.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "deepinfer/engine.h"
#include "engine/answer_state.h"
#include "engine/sampler.h"
#include "model/model.h"
#include "sched/scheduler.h"

namespace deepinfer {

struct RequestState;

/// One answer of a request on its way through the engine.
struct Sequence : SchedSeq {
  RequestState* request = nullptr;
  std::int32_t index = 0;
  bool closed = false;                        ///< nothing more will come
  FinishReason reason = FinishReason::kStop;  ///< when closed
  std::int64_t alone_until =
      0;  ///< runs alone until that many rows are computed: a step failed on the way there
  std::unique_ptr<AnswerState> answer;  ///< made when it first runs; a queued sequence stays small
  std::int64_t deepest_row = 0;    ///< rows that may have been written to its slot, dropped ones included
  std::int64_t ever_computed = 0;  ///< the same over all slots it had
};

/// A request from submission to result.
struct RequestState {
  RequestHandle handle = 0;
  Request request;
  Sink sink;
  Status refusal;  ///< of check_request()
  std::uint64_t seed = 0;
  std::int64_t prompt_count = 0;
  std::chrono::steady_clock::time_point submitted;
  StopStrings stops;
  std::shared_ptr<const CompiledConstraint> grammar;
  bool preparing = false;
  std::vector<Sequence> sequences;  ///< one an answer; addresses are stable
  std::int32_t open_count = 0;
  RequestResult result;
};

/// Parts of a step that are timed, in the order of EngineStats::stage_seconds.
enum class Stage { kPlan, kForward, kLogits, kGrammar, kSample, kText, kIdle, kCount };
const char* stage_name(Stage stage);

class EngineCore {
 public:
  struct Setup {
    Model* model = nullptr;
    Vocabulary vocabulary;
    std::int64_t max_rows = 0, max_chunk_rows = 0, max_running = 0, max_context = 0, max_cache_blocks = 0;
    std::int64_t tile_rows = 1;  ///< rows of logits held at once
    /// Starts compiling request.structured; the answer comes through grammar_ready().
    std::function<void(RequestState&)> start_compile;
    std::function<void()> before_model,
        after_model;  ///< around forward(): others may read this object meanwhile
  };
  explicit EngineCore(Setup setup);
  ~EngineCore();

  void add(std::unique_ptr<RequestState> request);
  void grammar_ready(RequestHandle handle, Result<std::shared_ptr<const CompiledConstraint>> grammar,
                     std::vector<std::string> warnings);
  void cancel(RequestHandle handle);
  /// Ends every request with this error.
  void fail_all(const Error& error);
  /// One step. False when no sequence is queued or running (grammars may still be compiling).
  bool step();
  bool idle() const { return requests_.empty(); }

  /// Drops the newest `rows` (<= kMaxRollbackRows) generated tokens of an answer that streams nothing: its
  /// tokens, text, counts, grammar and cache positions go back as if they had never been. Not from a sink.
  Status rollback(RequestHandle handle, std::int32_t index, std::int64_t rows);
  /// The tokens so far (prompt and answer), or an empty span.
  std::span<const TokenId> tokens(RequestHandle handle, std::int32_t index) const;

  using StageSeconds = std::array<double, static_cast<std::size_t>(Stage::kCount)>;
  /// Without stage_seconds, which are apart so that a copy a step stays cheap.
  EngineStats stats() const;
  const StageSeconds& stage_seconds() const { return stage_seconds_; }
  /// The state of every queue in words, a line an entry, at most `max_lines` a queue.
  std::string describe(std::size_t max_lines) const;
  /// Any thread.
  Stage stage() const { return stage_.load(std::memory_order_relaxed); }
  Scheduler& scheduler() { return scheduler_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Part;  // one plan item on its way through the step

  void enqueue(RequestState& request);
  void make_part(const StepPlan::Item& item);
  Status forward();
  Status take_outputs();
  Status take_row(Part& part, std::int64_t position, std::span<float> row);
  void step_failed(const Error& error);
  void settle();
  void rewind(Sequence& seq, std::int64_t computed);
  void emit(Sequence& seq);
  void close(Sequence& seq, FinishReason reason, const Error* error);
  void close_all(RequestState& request, FinishReason reason, const Error& error);
  void finish_request(RequestState& request);
  void enter(Stage stage);
  double seconds_since(Clock::time_point start) const;

  Setup setup_;
  Scheduler scheduler_;
  Sampler sampler_;
  std::unordered_map<RequestHandle, std::unique_ptr<RequestState>> requests_;
  std::uint64_t arrivals_ = 0;
  std::int64_t row_limit_ = 0;        // max_rows, or less after memory ran out
  std::int64_t good_steps_ = 0;       // since row_limit_ changed
  std::int64_t steps_to_grow_ = 16;   // doubles each time memory runs out, so that retries come to an end
  std::int64_t empty_plans_ = 0;      // in a row
  std::int64_t preparing_count_ = 0;  // sequences
  std::vector<Part> parts_;
  std::vector<Chunk> chunks_;
  std::vector<float> tile_;
  EngineStats counters_;
  StageSeconds stage_seconds_{};
  std::atomic<Stage> stage_ = Stage::kIdle;
  Clock::time_point stage_start_;
};

}  // namespace deepinfer
