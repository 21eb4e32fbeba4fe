// Longer runs of the program with the bundled model.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <random>
#include <thread>

#include "batch/batch_files.h"
#include "cli/program.h"

namespace deepinfer {
namespace {

using testing::run;
using testing::start;
using testing::wait_for;
using testing::Workspace;

// 1,000 mixed lines, 20 of them broken, killed at ten random moments.
TEST(ProgramSlow, AThousandMixedLinesKilledTenTimes) {
  const Workspace space;
  space.write("in", testing::mixed_input(1000));
  const std::vector<std::string> limits = {"--max-tokens", "4", "--max-context", "1024"};
  const auto arguments = [&](const std::string& output, bool resume) {
    std::vector<std::string> out = {"run", "-i", space.file("in"), "-o", space.file(output)};
    out.insert(out.end(), limits.begin(), limits.end());
    if (resume) out.push_back("--resume");
    return out;
  };
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(run(space, arguments("expected", false)), 3) << space.read("stderr");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ASSERT_EQ(space.lines("expected").size(), 1000u);
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  int killed = 0;
  for (int i = 0; i < 10; ++i) {
    const pid_t pid = start(space, arguments("out", true));
    std::this_thread::sleep_for(
        std::chrono::duration<double>(0.3 + seconds / 8 * (random() % 1000) / 1000.0));
    ::kill(pid, SIGKILL);
    killed += wait_for(pid) == 128 + SIGKILL ? 1 : 0;
    const std::string text = space.read("out");
    ASSERT_TRUE(text.empty() || text.back() == '\n');
  }
  std::printf("one run takes %.1f s; %d of 10 kills hit a running batch, %zu lines were there after them\n",
              seconds, killed, space.lines("out").size());
  EXPECT_GE(killed, 5);
  ASSERT_EQ(run(space, arguments("out", true)), 3) << space.read("stderr");
  EXPECT_EQ(space.sorted_lines("out"), space.sorted_lines("expected"));
}

std::int64_t resident_kib(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::atoll(line.c_str() + 6);
  }
  return 0;
}

// Resident memory is flat over 100,000 short requests.
TEST(ProgramSlow, ResidentMemoryIsFlatOverAHundredThousandRequests) {
  const Workspace space;
  constexpr int kLines = 100000;
  std::string input;
  for (int i = 0; i < kLines; ++i)
    input += fmt::format("{{\"prompt\":[0,{}],\"max_tokens\":1}}\n", 100 + i % 5000);
  space.write("in", input);
  const pid_t pid = start(space, {"run", "-i", space.file("in"), "-o", space.file("out"), "--max-context",
                                  "256", "--cache-tokens", "8192", "--max-tokens", "1"});
  std::vector<std::pair<double, std::int64_t>> samples;  // part of the lines, KiB
  while (::waitpid(pid, nullptr, WNOHANG) == 0) {
    std::error_code failure;
    const auto bytes = std::filesystem::file_size(space.file("out.journal"), failure);
    const std::int64_t kib = resident_kib(pid);
    if (!failure && kib > 0) samples.emplace_back(static_cast<double>(bytes) / 48 / kLines, kib);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ASSERT_EQ(space.lines("out").size(), static_cast<std::size_t>(kLines));
  std::int64_t early = 0, late = 0;
  for (const auto& [part, kib] : samples) {
    if (part > 0.1 && part < 0.2) early = std::max(early, kib);
    if (part > 0.9) late = std::max(late, kib);
  }
  std::printf("resident: %lld KiB after a tenth, %lld KiB at the end\n", static_cast<long long>(early),
              static_cast<long long>(late));
  ASSERT_GT(early, 0);
  EXPECT_LE(late, early + early / 50);
}

}  // namespace
}  // namespace deepinfer
