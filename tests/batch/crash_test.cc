// What a batch leaves behind when it is killed or the disk is full, and how much memory it takes. Everything
// runs in a child process (runner_child.cc).
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "batch/batch_files.h"
#include "batch/child.h"

namespace deepinfer {
namespace {

using testing::Child;
using ::testing::HasSubstr;
using testing::mixed_input;
using testing::peak_kib;
using testing::read_file;
using testing::read_lines;
using testing::start;
using testing::TempFolder;
using testing::wait_for;
using testing::write_file;

std::vector<std::string> sorted_lines(const std::string& path) {
  std::vector<std::string> lines = read_lines(path);
  std::sort(lines.begin(), lines.end());
  return lines;
}

// Case 20: kill -9 at ten random moments, resume each time: the file in the end is the one of an undisturbed
// run.
TEST(BatchCrash, KilledTenTimesAndResumedEqualsAnUninterruptedRun) {
  for (const std::string order : {"any", "ordered"}) {
    const TempFolder folder;
    write_file(folder.file("in"), mixed_input(1000));
    ASSERT_EQ(wait_for(start({folder.file("in"), folder.file("expected"), "fresh", order, "0"})), 3);
    const std::uint32_t seed = std::random_device{}();
    SCOPED_TRACE(fmt::format("seed {} order {}", seed, order));
    std::mt19937 random(seed);
    int killed = 0;
    std::size_t lines_at_kill = 0;
    for (int i = 0; i < 10; ++i) {
      const pid_t pid = start({folder.file("in"), folder.file("out"), "resume", order, "60000"});
      // A moment somewhere in the work: when some more results are there, or soon after the start.
      const std::size_t wanted = lines_at_kill + random() % 80;
      std::this_thread::sleep_for(std::chrono::milliseconds(10 + random() % 40));
      for (int wait = 0; wait < 2500 && read_lines(folder.file("out")).size() < wanted; ++wait) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      ::kill(pid, SIGKILL);
      killed += wait_for(pid) == 128 + SIGKILL ? 1 : 0;
      // Never a torn line, never one twice.
      const std::string text = read_file(folder.file("out"));
      EXPECT_TRUE(text.empty() || text.back() == '\n');
      std::vector<std::string> lines = sorted_lines(folder.file("out"));
      EXPECT_EQ(std::adjacent_find(lines.begin(), lines.end()), lines.end());
      for (const std::string& line : lines) EXPECT_TRUE(parse_json(line).ok()) << line;
      EXPECT_GE(lines.size() + 1, lines_at_kill) << "more than the one unjournalled result was lost";
      lines_at_kill = lines.size();
    }
    EXPECT_GE(killed, 8);
    EXPECT_GT(lines_at_kill, 0u) << "nothing was written before the kills, so this shows nothing";
    ASSERT_EQ(
        wait_for(start({folder.file("in"), folder.file("out"), "resume", order, "0", folder.file("log")})),
        3);
    if (order == "ordered") {
      EXPECT_EQ(read_file(folder.file("out")), read_file(folder.file("expected")));
    } else {
      EXPECT_EQ(sorted_lines(folder.file("out")), sorted_lines(folder.file("expected")));
    }
  }
}

// A crash of the machine can lose the newest bytes of either file, or leave holes in them.
TEST(BatchCrash, AnyTornEndOfOutputOrJournalIsRepaired) {
  const TempFolder folder;
  write_file(folder.file("in"), mixed_input(200));
  const Child fresh{folder.file("in"), folder.file("out"), "fresh", "any", "0"};
  ASSERT_EQ(wait_for(start(fresh)), 3);
  const std::vector<std::string> expected = sorted_lines(folder.file("out"));
  const std::string output = read_file(folder.file("out"));
  const std::string journal = read_file(folder.file("out.journal"));
  // The last block is the mark that all was durable; before it lie the last results.
  const std::string unmarked = journal.substr(0, journal.size() - 48);
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  Child resume = fresh;
  resume.mode = "resume";
  resume.log = folder.file("log");
  for (int i = 0; i < 24; ++i) {
    std::string torn_output = output;
    std::string torn_journal = unmarked;
    const std::size_t lost = random() % 3000;
    switch (i % 4) {
      case 0:
        torn_output.resize(output.size() - std::min(lost, output.size()));
        break;
      case 1:
        torn_journal.resize(48 + random() % (torn_journal.size() - 48));
        break;
      case 2:
        std::fill(torn_output.end() - static_cast<std::ptrdiff_t>(lost), torn_output.end(), '\0');
        break;
      default:
        std::fill(torn_journal.end() - static_cast<std::ptrdiff_t>(lost % 500), torn_journal.end(), '\0');
    }
    // Marks in the middle would rightly call the damage an edit: keep the header and the results only.
    std::string results = torn_journal.substr(0, 48);
    for (std::size_t at = 48; at < torn_journal.size(); at += 48) {
      const std::string block = torn_journal.substr(at, 48);
      const bool mark = block.size() == 48 && (block[34] & 4) != 0;
      if (!mark) results += block;
    }
    write_file(folder.file("out"), torn_output);
    write_file(folder.file("out.journal"), results);
    ASSERT_EQ(wait_for(start(resume)), 3) << "case " << i << ": " << read_file(folder.file("log"));
    EXPECT_EQ(sorted_lines(folder.file("out")), expected) << "case " << i;
  }
}

// A full disk ends the run with a clear message, and a resume with more room completes it.
TEST(BatchCrash, AFileThatCannotGrowEndsTheRunAndCanBeResumed) {
  const TempFolder folder;
  write_file(folder.file("in"), mixed_input(300));
  ASSERT_EQ(wait_for(start({folder.file("in"), folder.file("expected"), "fresh", "any", "0"})), 3);
  Child limited{folder.file("in"), folder.file("out"), "fresh", "any", "1000", folder.file("log")};
  // The table of ids alone needs 256 KiB; the results of this input need more.
  limited.file_limit = 300000;
  write_file(folder.file("in"), mixed_input(1000));
  ASSERT_EQ(wait_for(start({folder.file("in"), folder.file("expected2"), "fresh", "any", "0"})), 3);
  ASSERT_GT(read_file(folder.file("expected2")).size(), 300000u);
  EXPECT_EQ(wait_for(start(limited)), 1);
  EXPECT_THAT(read_file(folder.file("log")), HasSubstr("cannot write"));
  const std::string partial = read_file(folder.file("out"));
  ASSERT_FALSE(partial.empty());
  EXPECT_EQ(partial.back(), '\n') << "a torn line was left";
  Child resume = limited;
  resume.file_limit = -1;
  resume.mode = "resume";
  ASSERT_EQ(wait_for(start(resume)), 3) << read_file(folder.file("log"));
  EXPECT_EQ(sorted_lines(folder.file("out")), sorted_lines(folder.file("expected2")));
}

// The same on a really full file system, where one may be mounted.
TEST(BatchCrash, ARealFullDiskEndsTheRunAndCanBeResumed) {
  const TempFolder folder;
  const std::string disk = folder.file("disk");
  ASSERT_EQ(::mkdir(disk.c_str(), 0700), 0);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=700k") != 0)
    GTEST_SKIP() << "mounting a small disk is not allowed here";
  write_file(folder.file("in"), mixed_input(1000));
  EXPECT_EQ(wait_for(start({folder.file("in"), folder.file("expected"), "fresh", "any", "0"})), 3);
  Child child{folder.file("in"), disk + "/out", "fresh", "any", "1000", folder.file("log")};
  EXPECT_EQ(wait_for(start(child)), 1);
  EXPECT_THAT(read_file(folder.file("log")), HasSubstr("No space left on device"));
  EXPECT_EQ(::mount("tmpfs", disk.c_str(), "tmpfs", MS_REMOUNT, "size=10m"), 0);
  child.mode = "resume";
  EXPECT_EQ(wait_for(start(child)), 3) << read_file(folder.file("log"));
  EXPECT_EQ(sorted_lines(disk + "/out"), sorted_lines(folder.file("expected")));
  EXPECT_EQ(::umount(disk.c_str()), 0);
}

TEST(BatchMemory, PrivateMemoryDoesNotGrowWithTheInput) {
  const TempFolder folder;
  const std::int64_t small = peak_kib(folder, 20'000);
  const std::int64_t large = peak_kib(folder, 200'000);
  std::printf("private memory: %lld KiB over 20,000 lines, %lld KiB over 200,000\n",
              static_cast<long long>(small), static_cast<long long>(large));
  EXPECT_GT(small, 1000);
  EXPECT_LT(large, small + 2048);
}

}  // namespace
}  // namespace deepinfer
