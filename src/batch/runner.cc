#include "batch/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "api/version.h"
#include "batch/id_table.h"
#include "batch/job.h"
#include "batch/manifest.h"
#include "io/jsonl.h"

namespace deepinfer {
namespace {

using Clock = std::chrono::steady_clock;

// How often the controlling thread looks at the stop flag.
constexpr auto kTick = std::chrono::milliseconds(50);

// Adds the time of a scope to a counter.
class StageTimer {
 public:
  explicit StageTimer(std::atomic<std::int64_t>& total_ns) : total_ns_(total_ns) {}
  StageTimer(const StageTimer&) = delete;
  ~StageTimer() { total_ns_ += std::chrono::nanoseconds(Clock::now() - start_).count(); }

 private:
  std::atomic<std::int64_t>& total_ns_;
  Clock::time_point start_ = Clock::now();
};

class Runner {
 public:
  Runner(EngineInterface& engine, const PromptCodec& codec, const BatchOptions& options, JsonlReader reader,
         IdTable ids, ResultStore store, const std::atomic<bool>& stop)
      : engine_(engine),
        codec_(codec),
        options_(options),
        reader_(std::move(reader)),
        ids_(std::move(ids)),
        store_(std::move(store)),
        stop_(stop),
        meter_(counters_, reader_.total_bytes().value_or(-1)) {
    reader_.stop_when(&reading_stopped_);
    if (const Json* created = store_.manifest().find("created")) created_ = created->as_int();
  }

  Result<BatchReport> run() {
    std::thread reader([this] { read_lines(); });
    std::vector<std::thread> workers;
    for (int i = 0; i < std::max(options_.tokenise_threads, 1); ++i) {
      workers.emplace_back([this] { encode_lines(); });
    }
    std::thread writer([this] { write_results(); });
    control();
    reader.join();
    for (std::thread& worker : workers) worker.join();
    writer.join();
    return finish();
  }

 private:
  // ---- reader thread ----

  void read_lines() {
    Status status = read_until_end();
    if (!status.ok()) fail(status.error());
    if (status.ok() && !stopping()) counters_.input_ended = true;
    parsed_.close();
    const std::lock_guard lock(mutex_);
    reader_done_ = true;
    changed_.notify_all();
  }

  Status read_until_end() {
    for (std::int64_t sequence = 0;;) {
      if (stopping()) return {};
      DI_ASSIGN(const std::optional<JsonlLine> line, reader_.next());
      if (!line) break;
      if (!line->terminated && stopping()) return {};  // the rest of it was not read
      const StageTimer timer(counters_.read_ns);
      if (line->text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      counters_.lines_read += 1;
      const std::uint32_t input_hash = hash_input(line->text);
      if (store_.is_done(line->number)) {
        store_.note_skipped(line->number, input_hash);
        counters_.skipped += 1;
        counters_.bytes_skipped += line->size_bytes + 1;
        continue;
      }
      auto job = std::make_unique<Job>();
      job->sequence = sequence;
      job->line = line->number;
      job->size_bytes = line->size_bytes + 1;
      job->input_hash = input_hash;
      DI_TRY(parse(*line, *job));
      if (!admit(job->size_bytes)) return {};
      ++sequence;
      JobQueue& next = job->error ? finished_ : parsed_;
      next.push(std::move(job));
    }
    return store_.check_skipped();
  }

  // An error of the status is one of the run; the line's own go into the job.
  Status parse(const JsonlLine& line, Job& job) {
    if (line.too_long) {
      job.error = invalid_argument(fmt::format("the line has {} bytes, more than the {} allowed",
                                               line.size_bytes, options_.max_line_bytes));
      return {};
    }
    BatchLine parsed = parse_batch_line(line.text, options_.strict);
    job.id = std::move(parsed.id);
    if (parsed.request.ok()) {
      job.body = std::move(*parsed.request);
    } else {
      job.error = parsed.request.error();
      if (!job.id) return {};
    }
    // A line without a name is called by its number, which another line may have taken as its name.
    DI_ASSIGN(const std::int64_t owner, ids_.claim(hash_id(job.name()), job.line));
    job.owns_id = owner == job.line;
    if (!job.owns_id) {
      job.error = invalid_argument(
          fmt::format("custom_id {} was already used on line {}", json_quote(job.name()), owner),
          "/custom_id");
    }
    return {};
  }

  // Waits for room in the window; false when the run is being stopped.
  bool admit(std::int64_t size_bytes) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      if (stopping_) return true;
      if (counters_.in_flight == 0) return true;
      return counters_.in_flight < options_.window && bytes_in_flight_ + size_bytes <= options_.window_bytes;
    });
    if (stopping_) return false;
    counters_.in_flight += 1;
    bytes_in_flight_ += size_bytes;
    return true;
  }

  // ---- worker threads ----

  void encode_lines() {
    while (JobPtr job = parsed_.pop()) {
      Request request;
      if (stopping()) {
        job->abandoned = true;
        finished_.push(std::move(job));
        continue;
      }
      {
        const StageTimer timer(counters_.tokenise_ns);
        if (Status status = encode(*job, request); !status.ok()) job->error = status.error();
      }
      if (job->error) {
        finished_.push(std::move(job));
      } else {
        submit(std::move(job), std::move(request));
      }
    }
  }

  Status encode(Job& job, Request& out) const {
    BatchRequest& body = *job.body;
    Result<ApiRequest> parsed =
        parse_openai_request(body.endpoint, body.body, options_.defaults, {.strict = options_.strict});
    if (!parsed.ok()) return within(body.pointer, parsed.error());
    Result<std::vector<TokenId>> prompt = codec_.encode(*parsed);
    if (!prompt.ok()) return within(body.pointer, prompt.error());
    const auto count = static_cast<std::int64_t>(prompt->size());
    if (count >= engine_.max_context()) {
      const std::string_view field = body.endpoint == Endpoint::kChat ? "/messages" : "/prompt";
      return invalid_argument(fmt::format("the prompt has {} tokens; the context holds {}, answer included",
                                          count, engine_.max_context()),
                              body.pointer + std::string(field));
    }
    out.id = job.name();
    out.prompt = std::move(*prompt);
    out.sampling = parsed->sampling;
    out.structured = std::move(parsed->structured);
    // The result needs the switches of the request, not its text.
    parsed->conversation = {};
    parsed->prompt = {};
    parsed->prompt_tokens = {};
    job.request = std::move(*parsed);
    job.body.reset();
    return {};
  }

  static Error within(const std::string& pointer, Error error) {
    error.where = pointer + error.where;
    return error;
  }

  void submit(JobPtr job, Request request) {
    const std::int64_t sequence = job->sequence;
    {
      const std::lock_guard lock(mutex_);
      submitted_.emplace(sequence, 0);
    }
    // std::function wants a copyable callable; the job is moved out on its one call.
    auto shared = std::make_shared<JobPtr>(std::move(job));
    Sink sink;
    sink.on_done = [this, shared](RequestResult&& result) {
      JobPtr done = std::move(*shared);
      done->result = std::move(result);
      note_first_token(done->result);
      finished_.push(std::move(done));
    };
    const RequestHandle handle = engine_.submit(std::move(request), std::move(sink));
    bool cancel = false;
    {
      const std::lock_guard lock(mutex_);
      if (const auto it = submitted_.find(sequence); it != submitted_.end()) it->second = handle;
      cancel = cancelling_;
    }
    if (cancel) engine_.cancel(handle);
  }

  // Engine thread.
  void note_first_token(const RequestResult& result) {
    if (result.usage.completion_tokens == 0) return;
    const double moment = std::max(0.0, meter_.seconds() - (result.timing.total - result.timing.first_token));
    if (seconds_to_first_token_ == 0 || moment < seconds_to_first_token_) seconds_to_first_token_ = moment;
  }

  // ---- writer thread ----

  void write_results() {
    auto next_sync = Clock::now();
    bool dirty = false;
    while (!finished_.finished()) {
      const auto wait =
          std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.sync_seconds));
      JobPtr job = finished_.pop(dirty ? next_sync : Clock::now() + wait);
      if (job) dirty |= take(std::move(job));
      if (dirty && Clock::now() >= next_sync) {
        sync();
        dirty = false;
        next_sync = Clock::now() + wait;
      }
    }
    sync();
  }

  // Handles one finished line; whether something was written.
  bool take(JobPtr job) {
    {
      const std::lock_guard lock(mutex_);
      submitted_.erase(job->sequence);
      if (cancelling_ && job->result.error_code == error_code_name(ErrorCode::kCancelled))
        job->abandoned = true;
    }
    if (!options_.ordered) return write(std::move(job));
    held_.emplace(job->sequence, std::move(job));
    bool written = false;
    while (!held_.empty() && held_.begin()->first == next_sequence_) {
      JobPtr next = std::move(held_.begin()->second);
      held_.erase(held_.begin());
      ++next_sequence_;
      // In order means without gaps: behind an abandoned line nothing is written.
      abandon_rest_ |= next->abandoned;
      next->abandoned = abandon_rest_;
      written |= write(std::move(next));
    }
    return written;
  }

  bool write(JobPtr job) {
    if (failed_ || job->abandoned) {
      release(*job);
      return false;
    }
    const StageTimer timer(counters_.write_ns);
    ResultLine line;
    line.line = job->line;
    line.text = result_line(*job, codec_, {options_.model_name, created_, options_.run_details});
    line.owns_id = job->owns_id;
    if (job->owns_id) line.id = hash_id(job->name());
    line.is_error = job->error || !job->result.error_code.empty();
    line.input_hash = job->input_hash;
    if (Status status = store_.append(line); !status.ok()) {
      fail(status.error());
      release(*job);
      return false;
    }
    count(*job, line.is_error);
    release(*job);
    return true;
  }

  void sync() {
    if (failed_) return;
    const StageTimer timer(counters_.write_ns);
    if (Status status = store_.sync(); !status.ok()) fail(status.error());
  }

  void count(const Job& job, bool is_error) {
    (is_error ? counters_.failed : counters_.ok) += 1;
    counters_.bytes_finished += job.size_bytes;
    counters_.tokens_in += job.result.usage.prompt_tokens;
    counters_.tokens_out += job.result.usage.completion_tokens;
    const RequestTiming& t = job.result.timing;
    const auto microseconds = [](double seconds) {
      return static_cast<std::int64_t>(std::max(seconds, 0.0) * 1e6);
    };
    counters_.queue_us += microseconds(t.queued);
    counters_.prefill_us += microseconds(t.first_token - t.queued);
    counters_.decode_us += microseconds(t.total - t.first_token);
  }

  void release(const Job& job) {
    const std::lock_guard lock(mutex_);
    counters_.in_flight -= 1;
    bytes_in_flight_ -= job.size_bytes;
    changed_.notify_all();
  }

  // ---- controlling thread ----

  void control() {
    auto next_progress = Clock::now();
    std::optional<Clock::time_point> cancel_at;
    std::unique_lock lock(mutex_);
    while (!(reader_done_ && counters_.in_flight == 0)) {
      changed_.wait_for(lock, kTick);
      lock.unlock();
      if (stop_ && !cancel_at) {
        begin_stop();
        cancel_at = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                       std::chrono::duration<double>(options_.stop_grace_seconds));
      }
      if (failed_ && !cancel_at) cancel_at = Clock::now();
      if (cancel_at && Clock::now() >= *cancel_at) cancel_all();
      if (Clock::now() >= next_progress) {
        const EngineStats stats = engine_.stats();
        meter_.sample(stats);
        if (options_.on_progress && Clock::now() >= next_line_) {
          options_.on_progress(meter_.line(stats));
          next_line_ = Clock::now() + progress_interval();
        }
        next_progress = Clock::now() + std::chrono::milliseconds(500);
      }
      lock.lock();
    }
    lock.unlock();
    finished_.close();
  }

  Clock::duration progress_interval() const {
    return std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(options_.progress_seconds));
  }

  void begin_stop() {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    reading_stopped_ = true;
    interrupted_ = !failed_;
    changed_.notify_all();
  }

  void cancel_all() {
    std::vector<RequestHandle> handles;
    {
      const std::lock_guard lock(mutex_);
      if (cancelling_) return;
      cancelling_ = true;
      for (const auto& [sequence, handle] : submitted_) {
        if (handle != 0) handles.push_back(handle);
      }
    }
    for (const RequestHandle handle : handles) engine_.cancel(handle);
  }

  void fail(Error error) {
    const std::lock_guard lock(mutex_);
    if (!failed_) error_ = std::move(error);
    failed_ = true;
    stopping_ = true;
    reading_stopped_ = true;
    changed_.notify_all();
  }

  bool stopping() const {
    const std::lock_guard lock(mutex_);
    return stopping_;
  }

  Result<BatchReport> finish() {
    if (failed_) return error_;
    if (options_.ordered && options_.mode == StoreMode::kRetryErrors && !interrupted_)
      DI_TRY(store_.sort_by_line());
    const EngineStats stats = engine_.stats();
    meter_.sample(stats);
    BatchReport report;
    report.ok_count = counters_.ok;
    report.failed_count = counters_.failed;
    report.skipped_count = store_.done_count();
    report.skipped_failed_count = store_.done_error_count();
    report.dropped_count = store_.dropped_count();
    report.tokens_in = counters_.tokens_in;
    report.tokens_out = counters_.tokens_out;
    report.seconds = meter_.seconds();
    report.seconds_to_first_token = seconds_to_first_token_;
    report.stages = {.read = static_cast<double>(counters_.read_ns) * 1e-9,
                     .tokenise = static_cast<double>(counters_.tokenise_ns) * 1e-9,
                     .queue = static_cast<double>(counters_.queue_us) * 1e-6,
                     .prefill = static_cast<double>(counters_.prefill_us) * 1e-6,
                     .decode = static_cast<double>(counters_.decode_us) * 1e-6,
                     .write = static_cast<double>(counters_.write_ns) * 1e-9};
    report.tokens_per_second = meter_.tenths();
    report.interrupted = interrupted_;
    return report;
  }

  EngineInterface& engine_;
  const PromptCodec& codec_;
  const BatchOptions& options_;
  JsonlReader reader_;  // reader thread
  IdTable ids_;         // reader thread
  ResultStore store_;   // writer thread; is_done() and note_skipped() reader thread
  const std::atomic<bool>& stop_;
  std::int64_t created_ = 0;
  BatchCounters counters_;
  ProgressMeter meter_;  // controlling thread, but for seconds()
  Clock::time_point next_line_ = Clock::now() + progress_interval();

  JobQueue parsed_, finished_;
  std::map<std::int64_t, JobPtr> held_;  // writer thread; ordered mode
  std::int64_t next_sequence_ = 0;       // writer thread
  bool abandon_rest_ = false;            // writer thread

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t bytes_in_flight_ = 0;
  std::map<std::int64_t, RequestHandle> submitted_;  // by sequence; handle 0 = not known yet
  bool reader_done_ = false;
  bool stopping_ = false;  // no new lines
  std::atomic<bool> reading_stopped_{false};
  bool cancelling_ = false;  // running lines are cut off
  bool interrupted_ = false;
  std::atomic<bool> failed_{false};
  Error error_;
  std::atomic<double> seconds_to_first_token_{0};
};

std::string folder_of(const std::string& output) {
  if (output == "-" || output.starts_with("/dev/")) return std::filesystem::temp_directory_path().string();
  const std::string folder = std::filesystem::path(output).parent_path().string();
  return folder.empty() ? "." : folder;
}

Json sampling_json(const RequestDefaults& defaults) {
  const SamplingParams& s = defaults.sampling;
  Json out;
  out.set("temperature", s.temperature);
  out.set("top_k", s.top_k);
  out.set("top_p", s.top_p);
  out.set("min_p", s.min_p);
  out.set("repetition_penalty", s.repetition_penalty);
  out.set("presence_penalty", s.presence_penalty);
  out.set("frequency_penalty", s.frequency_penalty);
  out.set("max_tokens", s.max_tokens);
  out.set("min_tokens", s.min_tokens);
  out.set("ignore_eos", s.ignore_eos);
  out.set("seed", s.seed ? Json(*s.seed) : Json());
  out.set("thinking", defaults.chat.thinking);
  out.set("effort", defaults.chat.effort);
  return out;
}

Result<Json> make_manifest(const BatchOptions& options, std::int64_t max_context) {
  Json manifest;
  manifest.set("format", 1);
  manifest.set("engine", version_fingerprint());
  manifest.set("model", options.model_name);
  manifest.set("identity", options.identity);
  manifest.set("max_context", max_context);
  manifest.set("sampling", sampling_json(options.defaults));
  manifest.set("strict", options.strict);
  manifest.set("ordered", options.ordered);
  DI_ASSIGN(Json input, describe_input(options.input));
  manifest.set("input", std::move(input));
  const auto now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
  manifest.set("created", options.created.value_or(static_cast<std::int64_t>(now.count())));
  return manifest;
}

}  // namespace

Result<BatchReport> run_batch(EngineInterface& engine, const PromptCodec& codec, const BatchOptions& options,
                              const std::atomic<bool>& stop) {
  if (options.input != "-" && options.input == options.output) {
    return invalid_argument("input and output are the same file", options.output);
  }
  DI_ASSIGN(JsonlReader reader, JsonlReader::open(options.input, options.max_line_bytes));
  DI_ASSIGN(const Json manifest, make_manifest(options, engine.max_context()));
  DI_ASSIGN(IdTable ids, IdTable::create(folder_of(options.output)));
  DI_ASSIGN(ResultStore store, ResultStore::open(options.output, options.mode, manifest, ids));
  return Runner(engine, codec, options, std::move(reader), std::move(ids), std::move(store), stop).run();
}

}  // namespace deepinfer
