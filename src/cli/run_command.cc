// deepinfer run: a file of requests in, a file of results out.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "api/session.h"
#include "batch/runner.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/options.h"
#include "cli/signals.h"

namespace deepinfer::cli {
namespace {

struct RunOptions {
  SessionOptions session;
  BatchOptions batch;
  bool resume = false, overwrite = false, retry_errors = false, lenient = false, quiet = false;
};

StoreMode store_mode(const RunOptions& options) {
  if (options.retry_errors) return StoreMode::kRetryErrors;
  if (options.resume) return StoreMode::kResume;
  return options.overwrite ? StoreMode::kOverwrite : StoreMode::kFresh;
}

// Redrawn in place on a terminal, a line each elsewhere.
class ProgressPrinter {
 public:
  void print(const std::string& line) {
    if (!terminal_) {
      std::fprintf(stderr, "%s\n", line.c_str());
      return;
    }
    std::fprintf(stderr, "\r\033[K%s", line.c_str());
    std::fflush(stderr);
    open_ = true;
  }
  void finish() {
    if (open_) std::fputc('\n', stderr);
    open_ = false;
  }
  double interval_seconds() const { return terminal_ ? 1 : 10; }

 private:
  bool terminal_ = stderr_is_terminal();
  bool open_ = false;
};

std::optional<std::int64_t> source_date_epoch() {
  const char* text = std::getenv("SOURCE_DATE_EPOCH");
  if (text == nullptr || *text == '\0') return std::nullopt;
  return std::atoll(text);
}

int run(RunOptions& options) {
  const std::atomic<bool>& stop = catch_stop_signals();
  Result<std::unique_ptr<Session>> session = Session::open(options.session);
  if (!session.ok()) return report(session.error());
  Session& opened = **session;

  BatchOptions& batch = options.batch;
  ProgressPrinter printer;
  batch.mode = store_mode(options);
  batch.strict = !options.lenient;
  batch.model_name = opened.model_name();
  batch.identity = opened.identity();
  batch.created = source_date_epoch();
  batch.progress_seconds = printer.interval_seconds();
  if (!options.quiet) batch.on_progress = [&](const std::string& line) { printer.print(line); };

  const Result<BatchReport> outcome = run_batch(opened.engine(), opened.codec(), batch, stop);
  printer.finish();
  if (!outcome.ok()) {
    const int code = report(outcome.error());
    if (outcome.error().code == ErrorCode::kIo && std::filesystem::is_regular_file(batch.output)) {
      std::fprintf(stderr,
                   "deepinfer: what is written is whole; run the same command with --resume to go on\n");
    }
    return code;
  }
  if (!options.quiet) std::fputs(format_report(*outcome, opened.engine().stats()).c_str(), stderr);
  if (outcome->interrupted) {
    if (std::filesystem::is_regular_file(batch.output))
      std::fprintf(stderr, "deepinfer: run the same command with --resume to go on\n");
    return kExitInterrupted;
  }
  return outcome->failed_count + outcome->skipped_failed_count > 0 ? kExitSomeFailed : kExitOk;
}

}  // namespace

void register_run(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<RunOptions>();
  options->session.watchdog_seconds = 900;
  CLI::App* command = app.add_subcommand("run", "Answer a file of requests (OpenAI batch JSONL)");
  BatchOptions& batch = options->batch;
  command->add_option("-i,--input", batch.input, "Requests, one JSON object a line; - = stdin")
      ->required()
      ->type_name("FILE");
  command->add_option("-o,--output", batch.output, "Results, one JSON object a line; - = stdout")
      ->required()
      ->type_name("FILE");
  command->add_flag("--ordered", batch.ordered, "Write results in input order instead of as they finish");
  CLI::Option* resume =
      command->add_flag("--resume", options->resume, "Go on with an interrupted run (or start it)");
  CLI::Option* retry = command->add_flag("--retry-errors", options->retry_errors,
                                         "Like --resume, and compute failed lines again");
  command->add_flag("--overwrite", options->overwrite, "Replace an existing output")
      ->excludes(resume)
      ->excludes(retry);
  command->add_flag("--lenient", options->lenient,
                    "Unknown fields are warnings of the result instead of errors");
  command->add_flag("--details", batch.run_details, "Add timing and cached tokens to every result");
  command->add_flag("-q,--quiet", options->quiet, "No progress, no summary");
  command->add_option("--window", batch.window, "Lines read ahead of the results at most (1024)")
      ->check(CLI::Range(1, 10'000'000))
      ->type_name("N");
  command
      ->add_option("--watchdog", options->session.watchdog_seconds,
                   "Stop with a report when nothing moves that long; 0 = never (900)")
      ->check(CLI::NonNegativeNumber)
      ->type_name("SECONDS");
  add_model_options(*command, options->session);
  add_sampling_options(*command, batch.defaults);
  command->footer(
      "Exit code: 0 all lines answered, 3 some lines failed (see the error lines in the output), 1 the run "
      "itself\n"
      "failed, 2 wrong usage, 4 interrupted. docs/batch.md describes the formats.");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace deepinfer::cli
