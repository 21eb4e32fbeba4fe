#include "io/jsonl.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>
#include <thread>

#include "io/temp_folder.h"

namespace deepinfer {
namespace {

using testing::read_file;
using testing::TempFolder;

struct Line {
  std::string text;
  std::int64_t number, offset, size_bytes;
  bool too_long, terminated;
  bool operator==(const Line&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Line& l) {
  return out << l.number << "@" << l.offset << " size " << l.size_bytes << " long " << l.too_long << " end "
             << l.terminated << " \"" << l.text.substr(0, 50) << "\"";
}

std::vector<Line> drain(JsonlReader& reader) {
  std::vector<Line> out;
  for (;;) {
    const auto line = reader.next();
    EXPECT_TRUE(line.ok());
    if (!line.ok() || !line->has_value()) return out;
    const JsonlLine& l = **line;
    out.push_back({std::string(l.text), l.number, l.offset, l.size_bytes, l.too_long, l.terminated});
  }
}

std::vector<Line> lines_of(std::string_view contents, std::size_t bound = 100) {
  const TempFolder folder;
  auto reader = JsonlReader::open(folder.write("in", contents), bound);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader->total_bytes(), static_cast<std::int64_t>(contents.size()));
  auto out = drain(*reader);
  EXPECT_EQ(reader->offset(), static_cast<std::int64_t>(contents.size()));
  return out;
}

TEST(JsonlReader, NumbersAndOffsets) {
  EXPECT_EQ(lines_of("a\n\nbcd\r\ne"), (std::vector<Line>{{"a", 1, 0, 1, false, true},
                                                          {"", 2, 2, 0, false, true},
                                                          {"bcd", 3, 3, 3, false, true},
                                                          {"e", 4, 8, 1, false, false}}));
  EXPECT_TRUE(lines_of("").empty());
  EXPECT_EQ(lines_of("\n"), (std::vector<Line>{{"", 1, 0, 0, false, true}}));
  EXPECT_EQ(lines_of("\r\n"), (std::vector<Line>{{"", 1, 0, 0, false, true}}));
  EXPECT_EQ(lines_of("a\r"), (std::vector<Line>{{"a\r", 1, 0, 2, false, false}}));
}

TEST(JsonlReader, ByteOrderMarkOnlyAtTheStart) {
  EXPECT_EQ(lines_of("\xef\xbb\xbf{}\n\xef\xbb\xbf{}\n"),
            (std::vector<Line>{{"{}", 1, 3, 2, false, true}, {"\xef\xbb\xbf{}", 2, 6, 5, false, true}}));
  EXPECT_EQ(lines_of("\xef\xbb\xbf"), (std::vector<Line>{{"", 1, 3, 0, false, false}}));
}

TEST(JsonlReader, OverLongLinesAreSkippedNotKept) {
  EXPECT_EQ(lines_of("12345\n123456\n12345\r\n1\n", 5), (std::vector<Line>{{"12345", 1, 0, 5, false, true},
                                                                           {"12345", 2, 6, 6, true, true},
                                                                           {"12345", 3, 13, 5, false, true},
                                                                           {"1", 4, 20, 1, false, true}}));
  const std::string huge(5 << 20, 'x');  // several buffers long
  const auto lines = lines_of(huge + "\nok\n", 10);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], (Line{"xxxxxxxxxx", 1, 0, 5 << 20, true, true}));
  EXPECT_EQ(lines[1], (Line{"ok", 2, (5 << 20) + 1, 2, false, true}));
}

TEST(JsonlReader, LinesAcrossBufferBordersEqualASimpleSplit) {
  const std::uint64_t seed = 42;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 rng(seed);
  std::string text;
  std::vector<Line> want;
  for (int i = 0; i < 4000; ++i) {
    const std::size_t size = rng() % (i % 7 == 0 ? 9000 : 300);
    const std::string line(size, static_cast<char>('a' + i % 26));
    want.push_back(
        {line, i + 1, static_cast<std::int64_t>(text.size()), static_cast<std::int64_t>(size), false, true});
    text += line + "\n";
  }
  ASSERT_GT(text.size(), 2u << 20);
  EXPECT_EQ(lines_of(text, 10000), want);
}

TEST(JsonlReader, PipesInSmallPieces) {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  std::thread feeder([&] {
    for (const char c : std::string("one\ntwo\nthree")) {
      ASSERT_EQ(::write(fds[1], &c, 1), 1);
    }
    ::close(fds[1]);
  });
  JsonlReader reader(fds[0], "pipe", 100);
  EXPECT_FALSE(reader.total_bytes());
  const auto lines = drain(reader);
  feeder.join();
  ::close(fds[0]);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[2], (Line{"three", 3, 8, 5, false, false}));
}

TEST(JsonlReader, ErrorsNameThePath) {
  const TempFolder folder;
  EXPECT_EQ(JsonlReader::open(folder.file("none"), 10).error().to_string(),
            folder.file("none") + ": no such file");
  EXPECT_FALSE(JsonlReader::open(folder.path(), 10).ok());
}

TEST(JsonlWriter, AppendsAndContinues) {
  const TempFolder folder;
  const std::string path = folder.file("out");
  {
    auto writer = JsonlWriter::open(path, {.sync_each_line = true});
    ASSERT_TRUE(writer.ok());
    EXPECT_TRUE(writer->append("one").ok());
    EXPECT_FALSE(writer->append("t\nwo").ok());
    EXPECT_TRUE(writer->append("").ok());
  }
  {
    auto writer = JsonlWriter::open(path);
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ(writer->size_bytes(), 5);
    EXPECT_EQ(writer->torn_bytes_removed(), 0);
    EXPECT_TRUE(writer->append("three").ok());
    EXPECT_TRUE(writer->sync().ok());
  }
  EXPECT_EQ(read_file(path), "one\n\nthree\n");
  EXPECT_EQ(JsonlWriter::open(path, {.truncate = true})->size_bytes(), 0);
  EXPECT_EQ(read_file(path), "");
}

TEST(JsonlWriter, CutsATornTail) {
  const TempFolder folder;
  for (const std::size_t tail : {1u, 5u, 70000u, 200000u}) {
    const std::string path = folder.write("out", "one\n" + std::string(tail, 'x'));
    auto writer = JsonlWriter::open(path);
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ(writer->torn_bytes_removed(), static_cast<std::int64_t>(tail));
    EXPECT_TRUE(writer->append("two").ok());
    EXPECT_EQ(read_file(path), "one\ntwo\n");
  }
  const std::string path = folder.write("out", "no line end at all");
  EXPECT_EQ(JsonlWriter::open(path)->torn_bytes_removed(), 18);
  EXPECT_EQ(read_file(path), "");
}

TEST(JsonlWriter, ASecondWriterIsRefused) {
  const TempFolder folder;
  const auto first = JsonlWriter::open(folder.file("out"));
  ASSERT_TRUE(first.ok());
  const auto second = JsonlWriter::open(folder.file("out"));
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("another process"), std::string::npos);
}

TEST(JsonlWriter, ADiskThatFillsUpLeavesWholeLines) {
  const TempFolder folder;
  const std::string path = folder.file("out");
  std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto writer = JsonlWriter::open(path);
  ASSERT_TRUE(writer.ok());
  struct rlimit small = before;
  small.rlim_cur = 1000;  // the write that crosses this is cut short, the next one fails
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string line(299, 'x');
  int written = 0;
  while (written < 100 && writer->append(line).ok()) ++written;
  const std::string during = read_file(path);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(written, 3);
  EXPECT_EQ(during.size(), 900u);
  EXPECT_TRUE(writer->append("room again").ok());
  EXPECT_EQ(read_file(path).substr(900), "room again\n");
}

TEST(JsonlWriter, KillAtAnyMomentLeavesWholeLinesAfterReopening) {
  const TempFolder folder;
  const std::string path = folder.file("out");
  const std::uint64_t seed = 99;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 rng(seed);
  std::int64_t before = 0;
  for (int round = 0; round < 10; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto writer = JsonlWriter::open(path);
      if (!writer.ok()) ::_exit(1);
      for (int i = 0;; ++i) {
        const std::string line(static_cast<std::size_t>(i * 7919 % 5000), static_cast<char>('a' + i % 26));
        if (!writer->append("{" + line + "}").ok()) ::_exit(1);
      }
    }
    ::usleep(static_cast<useconds_t>(1000 + rng() % 8000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    auto writer = JsonlWriter::open(path);
    ASSERT_TRUE(writer.ok());
    EXPECT_GE(writer->size_bytes(), before) << "lines written earlier must survive";
    before = writer->size_bytes();
    auto reader = JsonlReader::open(path, 10000);
    for (const Line& line : drain(*reader)) {
      ASSERT_TRUE(line.terminated);
      ASSERT_TRUE(line.text.size() >= 2 && line.text.front() == '{' && line.text.back() == '}')
          << line.number;
    }
  }
  EXPECT_GT(before, 0);
}

}  // namespace
}  // namespace deepinfer
