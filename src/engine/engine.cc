#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "engine/core.h"
#include "engine/request_check.h"
#include "model/config.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

struct CancelMail {
  RequestHandle handle;
};
struct GrammarMail {
  RequestHandle handle;
  Result<std::shared_ptr<const CompiledConstraint>> grammar;
  std::vector<std::string> warnings;
};
using Mail = std::variant<std::unique_ptr<RequestState>, CancelMail, GrammarMail>;

struct CompileJob {
  RequestHandle handle;
  StructuredOutput what;
};

std::int64_t limit(std::int64_t wanted, std::int64_t have) {
  return wanted > 0 ? std::min(wanted, have) : have;
}

}  // namespace

struct Engine::Impl {
  EngineParts parts;
  EngineOptions options;
  RequestLimits limits;
  std::unique_ptr<EngineCore> core;

  // The inbox and everything the waiting threads look at.
  mutable std::mutex inbox_mutex;
  std::condition_variable inbox_changed, all_done;
  std::vector<Mail> inbox;
  RequestHandle next_handle = 1;
  std::int64_t open = 0;  // submitted and not done
  bool stopping = false;
  bool stalled = false;

  // Held by whoever changes `core`; free while the model runs, so that the watchdog can look.
  std::timed_mutex core_mutex;

  // The published moment.
  mutable std::mutex stats_mutex;
  EngineStats published;
  EngineCore::StageSeconds published_seconds{};
  std::atomic<std::int64_t> progress{0};
  std::int64_t done_before = 0, rows_before = 0;  // engine thread only

  std::mutex jobs_mutex;
  std::condition_variable jobs_changed;
  std::deque<CompileJob> jobs;
  bool jobs_stopping = false;

  std::condition_variable watchdog_wake;
  std::vector<std::thread> compilers;
  std::thread loop_thread, watchdog_thread;

  bool work_once();
  void publish();
  void loop();
  void compile_loop();
  void watch();
  void report_stall();
  void shut_down();
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Engine>> Engine::create(const EngineParts& parts, const EngineOptions& options) {
  DI_CHECK(parts.model != nullptr);
  Model& model = *parts.model;
  for (const auto& [name, value] : {std::pair<const char*, std::int64_t>{"max_rows", options.max_rows},
                                    {"max_chunk_rows", options.max_chunk_rows},
                                    {"max_running", options.max_running},
                                    {"max_context", options.max_context},
                                    {"max_cache_blocks", options.max_cache_blocks},
                                    {"logits_tile_bytes", options.logits_tile_bytes}}) {
    if (value < 0) return invalid_argument(fmt::format("{} is negative", value), name);
  }
  const CacheSize cache = model.cache_size();
  const std::int64_t blocks = limit(options.max_cache_blocks, cache.block_count);
  if (blocks < 1 || cache.slot_count < 1 || model.max_rows() < 1) {
    return invalid_argument("the model was opened without room for a single sequence", "cache");
  }
  EngineCore::Setup setup;
  setup.model = &model;
  setup.vocabulary.tokenizer = parts.tokenizer;
  setup.vocabulary.size = model.vocab_size();
  const TokenId eos = model.config().eos;
  if (eos >= 0 && eos < model.vocab_size()) setup.vocabulary.end_ids = {eos};
  if (parts.tokenizer != nullptr) {
    setup.vocabulary.think_begin = parts.tokenizer->find_token("<think>");
    setup.vocabulary.think_end = parts.tokenizer->find_token("</think>");
  }
  setup.max_rows = limit(options.max_rows, model.max_rows());
  setup.max_chunk_rows = limit(options.max_chunk_rows, setup.max_rows);
  setup.max_running = std::min(limit(options.max_running, cache.slot_count), setup.max_rows);
  setup.max_cache_blocks = blocks;
  setup.max_context = limit(options.max_context, blocks * kBlockTokens);
  if (model.config().max_positions > 0)
    setup.max_context = std::min(setup.max_context, model.config().max_positions);
  const std::int64_t row_bytes = model.vocab_size() * static_cast<std::int64_t>(sizeof(float));
  setup.tile_rows = std::clamp<std::int64_t>(options.logits_tile_bytes / row_bytes, 1, setup.max_rows);

  auto impl = std::make_unique<Impl>();
  Impl* self = impl.get();
  self->parts = parts;
  self->options = options;
  self->limits = {model.vocab_size(), setup.max_context, options.max_stop_bytes, parts.tokenizer != nullptr,
                  parts.compiler != nullptr};
  setup.start_compile = [self](RequestState& request) {
    const std::lock_guard lock(self->jobs_mutex);
    self->jobs.push_back({request.handle, request.request.structured});
    self->jobs_changed.notify_one();
  };
  setup.before_model = [self] { self->core_mutex.unlock(); };
  setup.after_model = [self] { self->core_mutex.lock(); };
  self->core = std::make_unique<EngineCore>(std::move(setup));
  self->publish();
  if (parts.compiler) {
    for (std::int64_t i = 0; i < std::max<std::int64_t>(1, options.grammar_threads); ++i) {
      self->compilers.emplace_back([self] { self->compile_loop(); });
    }
  }
  if (!options.manual) {
    self->loop_thread = std::thread([self] { self->loop(); });
    if (options.watchdog_seconds > 0) self->watchdog_thread = std::thread([self] { self->watch(); });
  }
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::~Engine() {
  {
    const std::lock_guard lock(impl_->inbox_mutex);
    impl_->stopping = true;
  }
  impl_->inbox_changed.notify_all();
  impl_->watchdog_wake.notify_all();
  if (impl_->loop_thread.joinable()) impl_->loop_thread.join();
  if (impl_->options.manual) impl_->shut_down();
  if (impl_->watchdog_thread.joinable()) impl_->watchdog_thread.join();
  {
    const std::lock_guard lock(impl_->jobs_mutex);
    impl_->jobs_stopping = true;
  }
  impl_->jobs_changed.notify_all();
  for (std::thread& compiler : impl_->compilers) compiler.join();
}

RequestHandle Engine::submit(Request request, Sink sink) {
  auto state = std::make_unique<RequestState>();
  state->submitted = std::chrono::steady_clock::now();
  state->refusal = check_request(request, impl_->limits);
  state->seed =
      request.sampling.seed ? *request.sampling.seed : derived_seed(impl_->options.seed, request.id);
  state->prompt_count = static_cast<std::int64_t>(request.prompt.size());
  state->stops = StopStrings(request.sampling.stop);
  state->request = std::move(request);
  state->sink = std::move(sink);
  RequestHandle handle = 0;
  {
    const std::lock_guard lock(impl_->inbox_mutex);
    if (impl_->stopping) state->refusal = Error{ErrorCode::kCancelled, "the engine was shut down", {}};
    handle = state->handle = impl_->next_handle++;
    ++impl_->open;
    impl_->inbox.emplace_back(std::move(state));
  }
  impl_->inbox_changed.notify_one();
  return handle;
}

void Engine::cancel(RequestHandle handle) {
  {
    const std::lock_guard lock(impl_->inbox_mutex);
    impl_->inbox.emplace_back(CancelMail{handle});
  }
  impl_->inbox_changed.notify_one();
}

void Engine::drain() {
  if (!impl_->options.manual) {
    std::unique_lock lock(impl_->inbox_mutex);
    impl_->all_done.wait(lock, [this] { return impl_->open == 0; });
    return;
  }
  while (true) {
    if (step()) continue;
    std::unique_lock lock(impl_->inbox_mutex);
    if (impl_->open == 0) return;
    impl_->inbox_changed.wait(lock, [this] { return !impl_->inbox.empty(); });
  }
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(impl_->stats_mutex);
  EngineStats out = impl_->published;
  for (std::size_t i = 0; i < impl_->published_seconds.size(); ++i) {
    out.stage_seconds[stage_name(static_cast<Stage>(i))] = impl_->published_seconds[i];
  }
  return out;
}

std::int64_t Engine::max_context() const {
  return impl_->limits.max_context;
}

bool Engine::step() {
  DI_CHECK(impl_->options.manual);
  return impl_->work_once();
}

EngineCore& Engine::core() {
  DI_CHECK(impl_->options.manual);
  return *impl_->core;
}

/// Takes the inbox in and does one step.
bool Engine::Impl::work_once() {
  std::vector<Mail> mails;
  bool was_stalled = false;
  {
    const std::lock_guard lock(inbox_mutex);
    mails.swap(inbox);
    was_stalled = std::exchange(stalled, false);
  }
  bool worked = !mails.empty();
  {
    const std::lock_guard lock(core_mutex);
    for (Mail& mail : mails) {
      if (auto* request = std::get_if<std::unique_ptr<RequestState>>(&mail)) {
        core->add(std::move(*request));
      } else if (auto* cancel = std::get_if<CancelMail>(&mail)) {
        core->cancel(cancel->handle);
      } else if (auto* ready = std::get_if<GrammarMail>(&mail)) {
        core->grammar_ready(ready->handle, std::move(ready->grammar), std::move(ready->warnings));
        progress.fetch_add(1, std::memory_order_relaxed);
      }
    }
    if (was_stalled) {
      core->fail_all(
          {ErrorCode::kDeadline, fmt::format("no progress for {} s", options.watchdog_seconds), "watchdog"});
    }
    worked |= core->step();
  }
  publish();
  return worked;
}

/// Makes counters and finished requests visible to other threads.
void Engine::Impl::publish() {
  const EngineStats now = core->stats();
  {
    const std::lock_guard lock(stats_mutex);
    published = now;
    published_seconds = core->stage_seconds();
  }
  if (now.rows != rows_before || now.requests_done != done_before)
    progress.fetch_add(1, std::memory_order_relaxed);
  if (now.requests_done != done_before) {
    const std::lock_guard lock(inbox_mutex);
    open -= now.requests_done - done_before;
    if (open == 0) all_done.notify_all();
  }
  rows_before = now.rows;
  done_before = now.requests_done;
}

void Engine::Impl::loop() {
  while (true) {
    if (!work_once()) {
      std::unique_lock lock(inbox_mutex);
      inbox_changed.wait(lock, [this] { return !inbox.empty() || stopping || stalled; });
    }
    const std::lock_guard lock(inbox_mutex);
    if (stopping) break;
  }
  shut_down();
}

void Engine::Impl::shut_down() {
  const std::lock_guard core_lock(core_mutex);
  while (true) {
    core->fail_all({ErrorCode::kCancelled, "the engine was shut down", {}});
    std::vector<Mail> mails;  // of before, and from sinks just now: refused, but answered
    {
      const std::lock_guard lock(inbox_mutex);
      mails.swap(inbox);
    }
    if (mails.empty()) break;
    for (Mail& mail : mails) {
      if (auto* request = std::get_if<std::unique_ptr<RequestState>>(&mail)) core->add(std::move(*request));
    }
  }
  publish();
}

void Engine::Impl::compile_loop() {
  while (true) {
    CompileJob job;
    {
      std::unique_lock lock(jobs_mutex);
      jobs_changed.wait(lock, [this] { return jobs_stopping || !jobs.empty(); });
      if (jobs_stopping) return;
      job = std::move(jobs.front());
      jobs.pop_front();
    }
    std::vector<std::string> warnings;
    Result<std::shared_ptr<const CompiledConstraint>> grammar =
        [&]() -> Result<std::shared_ptr<const CompiledConstraint>> {
      try {
        return parts.compiler->compile(job.what, warnings);
      } catch (const std::exception& e) {
        return Error{ErrorCode::kInternal, fmt::format("compiling the grammar threw: {}", e.what()),
                     "structured"};
      }
    }();
    const std::lock_guard lock(inbox_mutex);
    inbox.emplace_back(GrammarMail{job.handle, std::move(grammar), std::move(warnings)});
    inbox_changed.notify_all();
  }
}

// ---- watchdog ----

void Engine::Impl::watch() {
  using Clock = std::chrono::steady_clock;
  const std::chrono::duration<double> patience(options.watchdog_seconds);
  const auto tick =
      std::chrono::duration_cast<Clock::duration>(std::min(patience / 8, std::chrono::duration<double>(1.0)));
  std::int64_t seen = progress.load();
  auto since = Clock::now();
  std::unique_lock lock(inbox_mutex);
  while (!watchdog_wake.wait_for(lock, tick, [this] { return stopping; })) {
    const std::int64_t now = progress.load();
    if (open == 0 || now != seen) {
      seen = now;
      since = Clock::now();
      continue;
    }
    if (Clock::now() - since < patience) continue;
    lock.unlock();
    report_stall();
    lock.lock();
    stalled = true;
    inbox_changed.notify_all();
    since = Clock::now();
  }
}

void Engine::Impl::report_stall() {
  std::string report = fmt::format("no progress for {} s\n", options.watchdog_seconds);
  {
    const std::lock_guard lock(inbox_mutex);
    report += fmt::format("{} requests open, {} messages in the inbox\n", open, inbox.size());
  }
  if (core_mutex.try_lock_for(std::chrono::milliseconds(200))) {
    report += core->describe(32);
    core_mutex.unlock();
  } else {
    report += fmt::format("the engine's thread is busy in stage {}; its queues cannot be read\n",
                          stage_name(core->stage()));
  }
  if (options.on_stall) {
    options.on_stall(report);
    return;
  }
  std::fprintf(stderr, "deepinfer: watchdog: %s", report.c_str());
  std::fflush(stderr);
  std::_Exit(kWatchdogExitCode);
}

}  // namespace deepinfer
