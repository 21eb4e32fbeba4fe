// Line files: a streaming reader that never holds more than one line, and an append writer whose file only
// ever contains whole lines.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deepinfer {

/// One line without its line end ("\n" or "\r\n").
struct JsonlLine {
  std::string_view text;        ///< valid until the next call of next(); of an over-long line its first bytes
  std::int64_t number = 0;      ///< from 1
  std::int64_t offset = 0;      ///< of the line's first byte in the stream
  std::int64_t size_bytes = 0;  ///< true length, also of an over-long line
  bool too_long = false;        ///< longer than the reader's bound: the rest was skipped
  bool terminated = true;       ///< false: the stream ended without a line end
};

/// Reads a file, or stdin for "-", front to back. Memory: one line of at most max_line_bytes plus a 1 MiB
/// buffer, whatever the stream's length. A UTF-8 byte order mark at the very start is skipped (offsets still
/// count it). Blank lines are returned like others. One thread; movable.
class JsonlReader {
 public:
  static Result<JsonlReader> open(const std::string& path, std::size_t max_line_bytes);
  /// Reads from an open descriptor, which stays the caller's. `name` stands in errors. `buffer_bytes` is what
  /// one read asks for.
  JsonlReader(int fd, std::string name, std::size_t max_line_bytes,
              std::size_t buffer_bytes = std::size_t{1} << 20);
  JsonlReader(JsonlReader&& other) noexcept;
  JsonlReader& operator=(JsonlReader&&) = delete;
  JsonlReader(const JsonlReader&) = delete;
  ~JsonlReader();

  /// Makes a true `stop` end the stream, also while next() waits for a pipe or a terminal. Must outlive the
  /// reader.
  void stop_when(const std::atomic<bool>* stop) { stop_ = stop; }
  /// The next line, or nothing at the end. Errors: kIo.
  Result<std::optional<JsonlLine>> next();
  /// Bytes consumed by the lines returned so far.
  std::int64_t offset() const { return offset_; }
  /// Size of the underlying file when it is a regular file.
  std::optional<std::int64_t> total_bytes() const { return total_bytes_; }

 private:
  Result<bool> fill();
  bool wait_for_input() const;
  int fd_ = -1;
  bool owns_fd_ = false;
  std::string name_;
  std::size_t max_line_bytes_;
  const std::atomic<bool>* stop_ = nullptr;
  std::optional<std::int64_t> total_bytes_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;  // unread part of buffer_
  std::size_t end_ = 0;
  std::string line_;  // a line that crosses buffer fills
  std::int64_t number_ = 0;
  std::int64_t offset_ = 0;
  bool at_start_ = true;
};

struct JsonlWriterOptions {
  /// Make each append() durable before it returns. Otherwise call sync() at chosen moments.
  bool sync_each_line = false;
  /// Start with an empty file instead of keeping what is there.
  bool truncate = false;
};

/// Appends lines to a file, or to stdout for "-". Opening a file that ends in the middle of a line (a crash)
/// cuts that torn tail off. A line that cannot be written whole is taken back, so every line is complete or
/// absent; after a failed append the writer stays usable (the disk may have room again). Holds an advisory
/// lock: a second writer on the same file is refused. Not thread-safe; movable.
class JsonlWriter {
 public:
  static Result<JsonlWriter> open(const std::string& path, const JsonlWriterOptions& options = {});
  JsonlWriter(JsonlWriter&& other) noexcept;
  JsonlWriter& operator=(JsonlWriter&&) = delete;
  JsonlWriter(const JsonlWriter&) = delete;
  ~JsonlWriter();

  /// Writes `line` and a line end. Errors: kInvalidArgument when `line` contains a line end, kIo otherwise.
  Status append(std::string_view line);
  /// Makes everything appended so far durable (no effect on pipes and terminals).
  Status sync();
  /// Bytes of the torn last line that open() removed.
  std::int64_t torn_bytes_removed() const { return torn_bytes_removed_; }
  std::int64_t size_bytes() const { return size_bytes_; }

 private:
  JsonlWriter() = default;
  int fd_ = -1;
  bool owns_fd_ = false;
  bool regular_ = false;
  bool sync_each_line_ = false;
  bool broken_ = false;  // a torn line could not be taken back
  std::string path_;
  std::string pending_;  // the line with its end, reused
  std::int64_t size_bytes_ = 0;
  std::int64_t torn_bytes_removed_ = 0;
};

}  // namespace deepinfer
