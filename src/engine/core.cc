#include "engine/core.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "engine/request_check.h"
#include "engine/row_math.h"

namespace deepinfer {
namespace {

constexpr std::int64_t kMaxEmptyPlans =
    256;  // the pools refuse that often in a row: the first in rank ends with an error

double seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

/// Runs a call into the model; what libraries throw becomes an Error.
template <class Call>
Status guarded(Call call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kOutOfMemory, "the host has no memory left for this step", {}};
  } catch (const std::exception& e) {
    return Error{ErrorCode::kInternal, fmt::format("the step threw: {}", e.what()), {}};
  }
}

}  // namespace

const char* stage_name(Stage stage) {
  constexpr const char* kNames[] = {"plan", "forward", "logits", "grammar", "sample", "text", "idle"};
  return kNames[static_cast<std::size_t>(stage)];
}

struct EngineCore::Part {
  Sequence* seq;
  std::int64_t start;  // position of its first row
  std::int64_t rows;
  std::int64_t logits_from;  // rows from here on have outputs
  std::int64_t taken = 0;    // outputs dealt with
  bool finished = false;     // its answer is complete
  bool untouched = false;    // the model failed before its outputs were dealt with
  std::optional<Error> error;

  std::int64_t outputs() const { return rows - logits_from; }
};

EngineCore::EngineCore(Setup setup)
    : setup_(std::move(setup)),
      scheduler_(CachePools(setup_.model->cache_size(), setup_.max_cache_blocks, setup_.max_running),
                 {setup_.max_running, setup_.max_chunk_rows}),
      row_limit_(setup_.max_rows),
      stage_start_(Clock::now()) {
  tile_.resize(static_cast<std::size_t>(setup_.tile_rows * setup_.vocabulary.size));
}

EngineCore::~EngineCore() = default;

void EngineCore::enter(Stage stage) {
  const auto now = Clock::now();
  stage_seconds_[static_cast<std::size_t>(this->stage())] += seconds(now - stage_start_);
  stage_start_ = now;
  stage_.store(stage, std::memory_order_relaxed);
}

double EngineCore::seconds_since(Clock::time_point start) const {
  return seconds(Clock::now() - start);
}

// ---- requests in and out ----

void EngineCore::add(std::unique_ptr<RequestState> owned) {
  RequestState& request = *owned;
  ++counters_.requests_submitted;
  requests_.emplace(request.handle, std::move(owned));
  request.result.id = request.request.id;
  request.result.seed = request.seed;
  const std::int32_t n = request.refusal ? request.request.sampling.n : 0;
  request.sequences = std::vector<Sequence>(static_cast<std::size_t>(n));
  request.open_count = n;
  for (std::int32_t i = 0; i < n; ++i) {
    Sequence& seq = request.sequences[static_cast<std::size_t>(i)];
    seq.request = &request;
    seq.index = i;
    seq.priority = request.request.priority;
    seq.arrival = arrivals_++;
    seq.length = request.prompt_count;
  }
  if (!request.refusal) {
    request.result.error_code = error_code_name(request.refusal.error().code);
    request.result.error = request.refusal.error().to_string();
    finish_request(request);
  } else if (request.request.structured.kind != StructuredOutput::Kind::kNone) {
    request.preparing = true;
    preparing_count_ += n;
    setup_.start_compile(request);
  } else {
    enqueue(request);
  }
}

void EngineCore::enqueue(RequestState& request) {
  for (Sequence& seq : request.sequences) scheduler_.enqueue(seq);
}

void EngineCore::grammar_ready(RequestHandle handle,
                               Result<std::shared_ptr<const CompiledConstraint>> grammar,
                               std::vector<std::string> warnings) {
  const auto found = requests_.find(handle);
  if (found == requests_.end()) return;  // cancelled meanwhile
  RequestState& request = *found->second;
  request.preparing = false;
  preparing_count_ -= static_cast<std::int64_t>(request.sequences.size());
  for (std::string& warning : warnings) request.result.warnings.push_back(std::move(warning));
  if (grammar) {
    request.grammar = std::move(grammar).value();
    enqueue(request);
    return;
  }
  close_all(request, FinishReason::kError, grammar.error());
}

void EngineCore::cancel(RequestHandle handle) {
  const auto found = requests_.find(handle);
  if (found == requests_.end()) return;
  ++counters_.requests_cancelled;
  RequestState& request = *found->second;
  close_all(request, FinishReason::kCancelled, {ErrorCode::kCancelled, "the request was cancelled", {}});
}

void EngineCore::fail_all(const Error& error) {
  std::vector<RequestHandle> handles;
  for (const auto& entry : requests_) handles.push_back(entry.first);
  std::sort(handles.begin(), handles.end());
  for (const RequestHandle handle : handles) close_all(*requests_.at(handle), FinishReason::kError, error);
}

/// Ends all open answers, and with them the request.
void EngineCore::close_all(RequestState& request, FinishReason reason, const Error& error) {
  if (std::exchange(request.preparing, false))
    preparing_count_ -= static_cast<std::int64_t>(request.sequences.size());
  std::vector<Sequence*> open;
  for (Sequence& seq : request.sequences) {
    if (!seq.closed) open.push_back(&seq);
  }
  for (Sequence* seq : open) close(*seq, reason, &error);
}

/// Streams what is new and settled.
void EngineCore::emit(Sequence& seq) {
  const Sink& sink = seq.request->sink;
  if (!sink.on_delta || !seq.answer) return;
  Delta delta = seq.answer->take_delta();
  if (!delta.tokens.empty() || !delta.text.empty()) sink.on_delta(std::move(delta));
}

/// Goes back to `computed` rows; to none if that is further than the rings reach.
void EngineCore::rewind(Sequence& seq, std::int64_t computed) {
  seq.computed = seq.deepest_row - computed > kMaxRollbackRows ? 0 : computed;
}

/// Ends one answer. The request goes with its last one, so `seq` may be gone afterwards.
void EngineCore::close(Sequence& seq, FinishReason reason, const Error* error) {
  DI_CHECK(!seq.closed);
  RequestState& request = *seq.request;
  scheduler_.remove(seq);
  seq.closed = true;
  seq.reason = reason;
  if (seq.answer && !seq.answer->finished()) seq.answer->finish(reason);
  emit(seq);
  if (error != nullptr && request.result.error_code.empty()) {
    request.result.error_code = error_code_name(error->code);
    request.result.error = error->to_string();
  }
  if (--request.open_count == 0) finish_request(request);
}

void EngineCore::finish_request(RequestState& request) {
  RequestResult& result = request.result;
  result.usage.prompt_tokens = request.prompt_count;
  for (Sequence& seq : request.sequences) {
    result.timing.preemptions += seq.preemptions;
    if (seq.answer) {
      result.answers.push_back(seq.answer->take_answer());
    } else {
      Answer none;
      none.index = seq.index;
      none.finish = seq.reason;
      result.answers.push_back(std::move(none));
    }
    result.usage.completion_tokens += static_cast<std::int64_t>(result.answers.back().tokens.size());
  }
  result.timing.total = seconds_since(request.submitted);
  ++counters_.requests_done;
  if (!result.error_code.empty() && result.error_code != error_code_name(ErrorCode::kCancelled))
    ++counters_.requests_failed;
  const auto node = requests_.extract(request.handle);
  if (node.mapped()->sink.on_done) node.mapped()->sink.on_done(std::move(result));
}

// ---- one step ----

bool EngineCore::step() {
  if (scheduler_.first() == nullptr) return false;
  enter(Stage::kPlan);
  const StepPlan plan = scheduler_.plan(row_limit_);
  counters_.preemptions += plan.preempted;
  if (plan.items.empty()) {
    if (++empty_plans_ >= kMaxEmptyPlans) {
      empty_plans_ = 0;
      const Error error{ErrorCode::kOutOfMemory, "the cache gave no block or slot to this request", {}};
      close(static_cast<Sequence&>(*scheduler_.first()), FinishReason::kError, &error);
    }
    enter(Stage::kIdle);
    return true;
  }
  empty_plans_ = 0;
  parts_.clear();
  chunks_.clear();
  for (const StepPlan::Item& item : plan.items) make_part(item);
  counters_.last_step_rows = plan.rows;
  counters_.last_step_sequences = static_cast<std::int64_t>(parts_.size());

  Status status = forward();
  if (status) {
    counters_.rows += plan.rows;
    status = take_outputs();
  } else {
    for (Part& part : parts_) part.untouched = true;
  }
  ++counters_.steps;
  if (status) {
    if (++good_steps_ >= steps_to_grow_ && row_limit_ < setup_.max_rows) {
      row_limit_ = std::min(setup_.max_rows, row_limit_ * 2);
      good_steps_ = 0;
    }
  } else {
    step_failed(status.error());
  }
  enter(Stage::kText);
  settle();
  enter(Stage::kIdle);
  return true;
}

void EngineCore::make_part(const StepPlan::Item& item) {
  Sequence& seq = static_cast<Sequence&>(*item.seq);
  RequestState& request = *seq.request;
  const SamplingParams& params = request.request.sampling;
  if (!seq.answer) {
    std::vector<TokenId> tokens = params.n == 1 ? std::move(request.request.prompt) : request.request.prompt;
    const std::int64_t room = setup_.max_context - request.prompt_count;
    const std::int64_t max_new = params.max_tokens < 0 ? room : std::min(room, params.max_tokens);
    seq.answer = std::make_unique<AnswerState>(
        request.request, request.stops, setup_.vocabulary, std::move(tokens), seq.index,
        answer_seed(request.seed, seq.index), max_new, request.grammar ? request.grammar->start() : nullptr);
    counters_.tokens_in += request.prompt_count;
    if (request.result.timing.queued == 0) request.result.timing.queued = seconds_since(request.submitted);
  }
  Part part{&seq, seq.computed, item.rows, item.rows, 0, false, false, std::nullopt};
  const std::int64_t end = part.start + part.rows;
  seq.deepest_row = part.start == 0 ? end : std::max(seq.deepest_row, end);
  counters_.rows_recomputed += std::clamp<std::int64_t>(seq.ever_computed - part.start, 0, part.rows);
  seq.ever_computed = std::max(seq.ever_computed, end);
  if (end == seq.length && seq.answer->max_new() > 0) part.logits_from = part.rows - 1;
  if (seq.index == 0 && params.prompt_logprobs >= 0) {
    // Row p tells of prompt token p+1. Rows told of before a preemption are not asked for again.
    const std::int64_t next = static_cast<std::int64_t>(request.result.prompt_logprobs.size());
    if (next < request.prompt_count - 1) {
      part.logits_from = std::min(part.logits_from, std::max<std::int64_t>(0, next - part.start));
    }
  }
  const std::span<const TokenId> tokens = seq.answer->tokens();
  const std::size_t start = static_cast<std::size_t>(part.start);
  chunks_.push_back({seq.slot, part.start, tokens.subspan(start, static_cast<std::size_t>(part.rows)),
                     tokens.first(start), seq.blocks, part.logits_from});
  parts_.push_back(std::move(part));
}

Status EngineCore::forward() {
  enter(Stage::kForward);
  if (setup_.before_model) setup_.before_model();
  const Status status = guarded([&] { return setup_.model->forward(chunks_); });
  if (setup_.after_model) setup_.after_model();
  return status;
}

/// Deals with all output rows, a tile of them at a time.
Status EngineCore::take_outputs() {
  std::int64_t wanted = 0;
  for (const Part& part : parts_) wanted += part.outputs();
  DI_CHECK(setup_.model->output_rows() == wanted, "the model keeps ", setup_.model->output_rows(),
           " rows, not ", wanted);
  const std::size_t vocab = static_cast<std::size_t>(setup_.vocabulary.size);
  auto part = parts_.begin();
  for (std::int64_t first = 0; first < wanted; first += setup_.tile_rows) {
    const std::int64_t count = std::min(setup_.tile_rows, wanted - first);
    const std::span<float> tile(tile_.data(), static_cast<std::size_t>(count) * vocab);
    enter(Stage::kLogits);
    Status status = guarded([&] { return setup_.model->logits(first, count, tile); });
    enter(Stage::kSample);
    for (std::int64_t i = 0; i < count && status; ++i) {
      while (part->taken == part->outputs()) ++part;
      const std::int64_t position = part->start + part->logits_from + part->taken++;
      if (part->error) continue;
      const Status taken = guarded([&] {
        return take_row(*part, position, tile.subspan(static_cast<std::size_t>(i) * vocab, vocab));
      });
      if (!taken) part->error = taken.error();
    }
    if (!status) {
      for (; part != parts_.end(); ++part) part->untouched = part->taken < part->outputs();
      return status;
    }
  }
  return {};
}

/// One output row: the log-probability of a prompt token, or the next token.
Status EngineCore::take_row(Part& part, std::int64_t position, std::span<float> row) {
  Sequence& seq = *part.seq;
  RequestState& request = *seq.request;
  AnswerState& answer = *seq.answer;
  const auto place = [&] { return fmt::format("logits at position {} of answer {}", position, seq.index); };
  if (position + 1 < seq.length) {
    const RowScan scan = scan_row(row);
    if (!scan.finite)
      return Error{ErrorCode::kInternal, "the model produced logits that are not finite", place()};
    if (scan.flat)
      return Error{ErrorCode::kInternal, "the model produced logits that are all equal", place()};
    std::vector<TokenLogprob>& logprobs = request.result.prompt_logprobs;
    if (position != static_cast<std::int64_t>(logprobs.size()) || position + 1 >= request.prompt_count)
      return {};
    if (logprobs.empty()) logprobs.reserve(static_cast<std::size_t>(request.prompt_count - 1));
    logprobs.push_back(row_logprobs(row, scan.max, answer.tokens()[static_cast<std::size_t>(position) + 1],
                                    request.request.sampling.prompt_logprobs));
    return {};
  }
  if (answer.max_new() == 0) return {};
  DrawInputs inputs;
  if (request.grammar) enter(Stage::kGrammar);
  DI_TRY(answer.prepare_draw(inputs));
  if (request.grammar) enter(Stage::kSample);
  Result<Draw> draw = sampler_.draw(row, inputs);
  if (!draw) return draw.error().at(place());
  enter(Stage::kText);
  Result<bool> ended = answer.append(std::move(draw).value());
  enter(Stage::kSample);
  if (!ended) return ended.error();
  part.finished = *ended;
  ++seq.length;
  ++counters_.tokens_out;
  if (request.result.timing.first_token == 0)
    request.result.timing.first_token = seconds_since(request.submitted);
  return {};
}

/// The model failed. Parts whose outputs were all dealt with stand; the others are tried again, each alone.
/// Who fails alone ends with the error.
void EngineCore::step_failed(const Error& error) {
  ++counters_.step_errors;
  good_steps_ = 0;
  std::int64_t rows = 0, failed = 0;
  for (const Part& part : parts_) {
    if (part.untouched) rows += part.rows, ++failed;
  }
  const bool smaller = error.code == ErrorCode::kOutOfMemory && rows > 1;
  if (smaller) {
    row_limit_ = std::max<std::int64_t>(1, rows / 2);
    steps_to_grow_ = std::min<std::int64_t>(steps_to_grow_ * 2, 1 << 20);
  }
  for (Part& part : parts_) {
    if (!part.untouched) continue;
    if (!smaller && failed == 1 && part.seq->alone) part.error = error;
    if (!smaller) part.seq->alone_until = part.start + part.rows;
  }
}

/// Bookkeeping after a step: progress, deltas, ends.
void EngineCore::settle() {
  for (Part& part : parts_) {
    Sequence& seq = *part.seq;
    if (!part.untouched) {
      seq.computed = part.start + part.rows;
      if (seq.answer->max_new() == 0 && seq.computed == seq.length && !part.error) {
        seq.answer->finish(FinishReason::kLength);
        part.finished = true;
      }
    } else {
      rewind(seq, part.start);
    }
    seq.alone = seq.computed < seq.alone_until;
    if (part.error) {
      close(seq, FinishReason::kError, &*part.error);
    } else if (part.finished) {
      close(seq, seq.answer->finish_reason(), nullptr);
    } else {
      emit(seq);
    }
  }
  parts_.clear();
}

// ---- rollback, statistics ----

Status EngineCore::rollback(RequestHandle handle, std::int32_t index, std::int64_t rows) {
  const auto found = requests_.find(handle);
  if (found == requests_.end()) return not_found("no such request");
  Sequence& seq = found->second->sequences.at(static_cast<std::size_t>(index));
  if (seq.closed || !seq.answer) return not_found("this answer is not running");
  if (rows < 0 || rows > kMaxRollbackRows || rows > seq.answer->answer_count()) {
    return invalid_argument(fmt::format("{} rows cannot be dropped", rows));
  }
  if (rows == 0) return {};
  DI_TRY(seq.answer->rollback(rows));
  seq.length -= rows;
  if (seq.computed >= seq.length) rewind(seq, seq.length - 1);
  if (seq.state == SchedSeq::State::kRunning) scheduler_.pools().shrink(seq.blocks, seq.length);
  return {};
}

std::span<const TokenId> EngineCore::tokens(RequestHandle handle, std::int32_t index) const {
  const auto found = requests_.find(handle);
  if (found == requests_.end()) return {};
  const Sequence& seq = found->second->sequences.at(static_cast<std::size_t>(index));
  return seq.answer ? seq.answer->tokens() : std::span<const TokenId>{};
}

EngineStats EngineCore::stats() const {
  EngineStats out = counters_;
  const CachePools& pools = scheduler_.pools();
  out.preparing = preparing_count_;
  out.waiting = scheduler_.waiting_count();
  out.running = static_cast<std::int64_t>(scheduler_.running().size());
  out.blocks_used = pools.used_blocks();
  out.blocks_total = pools.block_count();
  out.cache_bytes_used = pools.bytes_used();
  out.cache_bytes_total = pools.bytes_total();
  out.max_context = setup_.max_context;
  return out;
}

std::string EngineCore::describe(std::size_t max_lines) const {
  const CachePools& pools = scheduler_.pools();
  std::string out = fmt::format(
      "stage {}, step {}: {} rows of {} sequences; row limit {}\n"
      "cache: {} of {} blocks, {} of {} slots\n",
      stage_name(stage()), counters_.steps, counters_.last_step_rows, counters_.last_step_sequences,
      row_limit_, pools.used_blocks(), pools.block_count(), pools.used_slots(), pools.slot_count());
  const auto line = [&](const Sequence& seq) {
    out += fmt::format(
        "  {} answer {}: priority {}, {} tokens, {} rows computed, {} blocks, slot {}{}\n",
        seq.request->request.id.empty() ? fmt::format("#{}", seq.request->handle) : seq.request->request.id,
        seq.index, seq.priority, seq.length, seq.computed, seq.blocks.size(), seq.slot,
        seq.alone ? ", alone" : "");
  };
  const auto more = [&](std::size_t count) {
    if (count > max_lines) out += fmt::format("  and {} more\n", count - max_lines);
  };
  out += fmt::format("running: {}\n", scheduler_.running().size());
  for (std::size_t i = 0; i < std::min(max_lines, scheduler_.running().size()); ++i) {
    line(static_cast<const Sequence&>(*scheduler_.running()[i]));
  }
  more(scheduler_.running().size());
  out += fmt::format("waiting: {}\n", scheduler_.waiting_count());
  for (const SchedSeq* seq : scheduler_.first_waiting(max_lines)) line(static_cast<const Sequence&>(*seq));
  more(static_cast<std::size_t>(scheduler_.waiting_count()));
  out += fmt::format("grammars being compiled: {} answers\n", preparing_count_);
  return out;
}

}  // namespace deepinfer
