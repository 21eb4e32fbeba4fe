// deepinfer bench: prefill and decode speed of one model beside the limits of this machine, measured in the
// same run.
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>

#include "api/session.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "io/json.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/limits.h"
#include "model/open_model.h"
#include "model/speed.h"

namespace deepinfer::cli {
namespace {

struct Options {
  std::string model;
  SpeedOptions speed;
  std::int64_t max_rows = 512;
  int threads = 0;
  bool reference = false;
  bool json = false;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

Json result_json(const SpeedResult& r, double bandwidth, double peak) {
  Json j = Json::object();
  j.set("what", r.what);
  j.set("seconds_median", r.seconds);
  j.set("seconds_min", r.fastest);
  j.set("seconds_max", r.slowest);
  j.set("tokens_per_second", r.tokens_per_second());
  j.set("bytes", r.cost.bytes());
  j.set("flops", r.cost.flops);
  j.set("bandwidth_share", r.cost.bytes() / r.seconds / bandwidth);
  j.set("peak_share", r.cost.flops / r.seconds / peak);
  return j;
}

Status bench(Options options) {
  if (options.model.empty()) {
    DI_ASSIGN(options.model, default_model_folder());
  }
  ThreadPool threads(options.threads);
  std::fprintf(stderr, "measuring this machine (2 s) ...\n");
  const double bandwidth = cpu::measure_read_bandwidth(threads, 1.0);
  const double peak = cpu::measure_fma_peak(threads, 0.5);
  const CacheSize cache = speed_cache_size(options.speed);
  const auto begin = std::chrono::steady_clock::now();
  DI_ASSIGN(const std::unique_ptr<Decoder> model,
            open_model(options.model,
                       {.kernels = options.reference ? KernelChoice::kReference : KernelChoice::kFast,
                        .max_rows = options.max_rows,
                        .block_count = cache.block_count,
                        .slot_count = cache.slot_count,
                        .threads = options.threads}));
  const double load_seconds = seconds_since(begin);
  if (!options.json) {
    fmt::print("machine   {} threads, {}, reads {:.1f} GB/s, {:.0f} GFLOP/s (fp32 multiply-add)\n",
               threads.thread_count(), std::string(cpu::isa_name(cpu::current_isa())), bandwidth * 1e-9,
               peak * 1e-9);
    fmt::print("model     {}, loaded in {:.2f} s\n", options.model, load_seconds);
    fmt::print("context {} positions, median of {} runs\n\n", options.speed.context,
               options.speed.repetitions);
    fmt::print("{:<18} {:>10} {:>10} {:>21} {:>22}\n", "", "tokens/s", "ms", "GB/s (% of limit)",
               "GFLOP/s (% of limit)");
  }
  DI_ASSIGN(const std::vector<SpeedResult> results,
            measure_speed(*model, options.speed, [&](const SpeedResult& r) {
              if (options.json) return;
              const double bytes = r.cost.bytes() / r.seconds, flops = r.cost.flops / r.seconds;
              fmt::print("{:<18} {:>10.1f} {:>10.2f} {:>12.2f} ({:>5.1f} %) {:>13.1f} ({:>5.1f} %)\n", r.what,
                         r.tokens_per_second(), r.seconds * 1e3, bytes * 1e-9, 100 * bytes / bandwidth,
                         flops * 1e-9, 100 * flops / peak);
              std::fflush(stdout);
            }));
  if (options.json) {
    Json j = Json::object();
    j.set("model", options.model);
    j.set("threads", threads.thread_count());
    j.set("isa", std::string(cpu::isa_name(cpu::current_isa())));
    j.set("read_bytes_per_second", bandwidth);
    j.set("flops_per_second", peak);
    j.set("load_seconds", load_seconds);
    Json list = Json::array();
    for (const SpeedResult& r : results) list.push(result_json(r, bandwidth, peak));
    j.set("results", std::move(list));
    j.set("peak_memory_bytes", peak_memory_bytes());
    fmt::print("{}\n", to_json_text(j));
  } else {
    fmt::print("\npeak memory {:.0f} MiB\n", peak_memory_bytes() / (1 << 20));
  }
  return {};
}

}  // namespace

void register_bench(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("bench",
                                         "Measure prefill and decode speed of a model against this machine's "
                                         "memory bandwidth and arithmetic peak");
  command->add_option("model", options->model,
                      "Model folder (default: $DEEPINFER_MODEL, else the bundled model)");
  command->add_option("--prefill", options->speed.prefill_lengths, "Prompt lengths")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--batch", options->speed.batches, "Sequences decoded together")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--context", options->speed.context, "Positions behind the decoded tokens")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--repetitions", options->speed.repetitions, "Timed runs of each measurement")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--max-rows", options->max_rows, "Rows of one step")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Threads (default: physical cores)")
      ->check(CLI::Range(1, 1024));
  command->add_flag("--reference", options->reference, "Use the reference kernels");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([options, &exit_code] {
    const Status status = bench(*options);
    exit_code = status.ok() ? kExitOk : report(status.error());
  });
}

}  // namespace deepinfer::cli
