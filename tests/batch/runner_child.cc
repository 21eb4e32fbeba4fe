// The real runner over the fake engine as a program of its own, so that tests can kill it, limit its files
// and measure its memory: batch_runner_child INPUT OUTPUT fresh|resume|retry any|ordered MAX_DELAY_US Prints
// the largest private memory seen (KiB) and the report's counts.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "batch/batch_files.h"
#include "batch/fake_engine.h"

namespace {

std::int64_t private_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::atoll(line.c_str() + 8);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace deepinfer;
  if (argc != 6) return 2;
  std::signal(SIGXFSZ, SIG_IGN);  // the file-size limit of a test shows as a write error
  BatchOptions options = testing::batch_options(argv[1], argv[2]);
  const std::string mode = argv[3];
  options.mode = mode == "resume"  ? StoreMode::kResume
                 : mode == "retry" ? StoreMode::kRetryErrors
                                   : StoreMode::kFresh;
  options.ordered = std::strcmp(argv[4], "ordered") == 0;
  const std::int64_t max_delay_us = std::atoll(argv[5]);
  if (max_delay_us > 0) options.window = 64;  // a slow engine shall still be at work when it is killed
  std::int64_t peak = 0;
  options.progress_seconds = 0;
  options.on_progress = [&](const std::string&) { peak = std::max(peak, private_kib()); };
  testing::FakeEngine engine({.max_delay_us = max_delay_us});
  const std::atomic<bool> stop{false};
  const Result<BatchReport> report = run_batch(engine, testing::FakeCodec{}, options, stop);
  if (!report.ok()) {
    std::fprintf(stderr, "%s\n", report.error().to_string().c_str());
    return 1;
  }
  peak = std::max(peak, private_kib());
  std::printf("%lld %lld %lld %lld\n", static_cast<long long>(peak), static_cast<long long>(report->ok_count),
              static_cast<long long>(report->failed_count), static_cast<long long>(report->skipped_count));
  return report->failed_count + report->skipped_failed_count > 0 ? 3 : 0;
}
