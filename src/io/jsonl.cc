#include "io/jsonl.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace deepinfer {
namespace {

constexpr std::size_t kLongestLine = std::size_t{1} << 40;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

std::optional<std::int64_t> regular_size(int fd) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return static_cast<std::int64_t>(info.st_size);
}

}  // namespace

// ---- reader ----

Result<JsonlReader> JsonlReader::open(const std::string& path, std::size_t max_line_bytes) {
  if (path == "-") return JsonlReader(STDIN_FILENO, "stdin", max_line_bytes);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const int code = errno;
    if (code == ENOENT || code == ENOTDIR) return not_found("no such file", path);
    return io_error("cannot open the file", code, path);
  }
  JsonlReader reader(fd, path, max_line_bytes);
  reader.owns_fd_ = true;
  struct stat info = {};
  if (::fstat(fd, &info) == 0 && S_ISDIR(info.st_mode))
    return invalid_argument("is a folder, expected a file", path);
  return reader;
}

JsonlReader::JsonlReader(int fd, std::string name, std::size_t max_line_bytes, std::size_t buffer_bytes)
    : fd_(fd),
      name_(std::move(name)),
      max_line_bytes_(std::min(max_line_bytes, kLongestLine)),
      total_bytes_(regular_size(fd)),
      buffer_(buffer_bytes) {}

JsonlReader::JsonlReader(JsonlReader&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      owns_fd_(std::exchange(other.owns_fd_, false)),
      name_(std::move(other.name_)),
      max_line_bytes_(other.max_line_bytes_),
      stop_(other.stop_),
      total_bytes_(other.total_bytes_),
      buffer_(std::move(other.buffer_)),
      begin_(other.begin_),
      end_(other.end_),
      line_(std::move(other.line_)),
      number_(other.number_),
      offset_(other.offset_),
      at_start_(other.at_start_) {}

JsonlReader::~JsonlReader() {
  if (owns_fd_) ::close(fd_);
}

/// False when the stream is to end now. Only pipes and terminals can keep a reader waiting.
bool JsonlReader::wait_for_input() const {
  if (stop_ == nullptr) return true;
  constexpr int kPollMs = 100;
  while (!*stop_) {
    pollfd input = {fd_, POLLIN, 0};
    if (total_bytes_ || ::poll(&input, 1, kPollMs) != 0) return true;
  }
  return false;
}

/// Refills the empty buffer; false at the end of the stream.
Result<bool> JsonlReader::fill() {
  begin_ = 0;
  end_ = 0;
  for (;;) {
    if (!wait_for_input()) return false;
    const ssize_t count = ::read(fd_, buffer_.data(), buffer_.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return io_error("cannot read", errno, name_);
    end_ = static_cast<std::size_t>(count);
    return count > 0;
  }
}

Result<std::optional<JsonlLine>> JsonlReader::next() {
  line_.clear();
  JsonlLine line;
  std::int64_t raw_bytes = 0;  // of the line as it lies in the stream, its end included
  char last = '\0';            // the byte before the line end
  bool any = false;
  const std::size_t kept_bytes = max_line_bytes_ + kByteOrderMark.size();
  line.terminated = false;
  for (;;) {
    if (begin_ == end_) {
      DI_ASSIGN(const bool more, fill());
      if (!more) break;
    }
    any = true;
    const char* data = buffer_.data() + begin_;
    const std::size_t size = end_ - begin_;
    const void* newline = std::memchr(data, '\n', size);
    const std::size_t taken =
        newline != nullptr ? static_cast<std::size_t>(static_cast<const char*>(newline) - data) : size;
    line_.append(data, std::min(taken, kept_bytes - line_.size()));
    if (taken > 0) last = data[taken - 1];
    raw_bytes += static_cast<std::int64_t>(taken);
    begin_ += taken;
    if (newline != nullptr) {
      ++begin_;
      ++raw_bytes;
      line.terminated = true;
      break;
    }
  }
  if (!any) return std::optional<JsonlLine>();
  line.number = ++number_;
  line.offset = offset_;
  line.size_bytes = raw_bytes - (line.terminated ? 1 : 0);
  offset_ += raw_bytes;

  std::string_view text = line_;
  if (std::exchange(at_start_, false) && text.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
    text.remove_prefix(kByteOrderMark.size());
    line.size_bytes -= static_cast<std::int64_t>(kByteOrderMark.size());
    line.offset += static_cast<std::int64_t>(kByteOrderMark.size());
  }
  if (line.terminated && line.size_bytes > 0 && last == '\r') --line.size_bytes;
  line.too_long = line.size_bytes > static_cast<std::int64_t>(max_line_bytes_);
  line.text = text.substr(0, std::min(max_line_bytes_, static_cast<std::size_t>(line.size_bytes)));
  return std::optional<JsonlLine>(line);
}

// ---- writer ----

namespace {

/// Offset just behind the last line end of a file of `size` bytes.
Result<std::int64_t> whole_lines_end(int fd, std::int64_t size, const std::string& path) {
  std::vector<char> block(64 << 10);
  for (std::int64_t end = size; end > 0;) {
    const std::int64_t begin = std::max<std::int64_t>(0, end - static_cast<std::int64_t>(block.size()));
    std::size_t done = 0;
    const auto want = static_cast<std::size_t>(end - begin);
    while (done < want) {
      const ssize_t count =
          ::pread(fd, block.data() + done, want - done, begin + static_cast<std::int64_t>(done));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return io_error("cannot read back the end of the file", count < 0 ? errno : EIO, path);
      done += static_cast<std::size_t>(count);
    }
    for (std::size_t i = want; i-- > 0;) {
      if (block[i] == '\n') return begin + static_cast<std::int64_t>(i) + 1;
    }
    end = begin;
  }
  return std::int64_t{0};
}

/// Makes a new file's name durable.
void sync_folder_of(const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

Result<JsonlWriter> JsonlWriter::open(const std::string& path, const JsonlWriterOptions& options) {
  JsonlWriter writer;
  writer.path_ = path == "-" ? "stdout" : path;
  writer.sync_each_line_ = options.sync_each_line;
  if (path == "-") {
    writer.fd_ = STDOUT_FILENO;
    return writer;
  }
  writer.fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (writer.fd_ < 0 && errno == EACCES)
    writer.fd_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);  // a device
  if (writer.fd_ < 0) return io_error("cannot open the file for writing", errno, path);
  writer.owns_fd_ = true;
  const auto size = regular_size(writer.fd_);
  if (!size) return writer;  // a pipe or a device: nothing to repair, nothing to sync
  writer.regular_ = true;
  if (::flock(writer.fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return Error{ErrorCode::kIo, "another process is writing this file", path};
  std::int64_t keep = 0;
  if (!options.truncate) {
    DI_ASSIGN(keep, whole_lines_end(writer.fd_, *size, path));
    writer.torn_bytes_removed_ = *size - keep;
  }
  if (keep != *size && ::ftruncate(writer.fd_, keep) != 0)
    return io_error("cannot cut the file", errno, path);
  writer.size_bytes_ = keep;
  sync_folder_of(path);
  return writer;
}

JsonlWriter::JsonlWriter(JsonlWriter&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      owns_fd_(std::exchange(other.owns_fd_, false)),
      regular_(other.regular_),
      sync_each_line_(other.sync_each_line_),
      broken_(other.broken_),
      path_(std::move(other.path_)),
      pending_(std::move(other.pending_)),
      size_bytes_(other.size_bytes_),
      torn_bytes_removed_(other.torn_bytes_removed_) {}

JsonlWriter::~JsonlWriter() {
  if (owns_fd_) ::close(fd_);
}

Status JsonlWriter::append(std::string_view line) {
  if (line.find('\n') != std::string_view::npos)
    return invalid_argument("a line may not contain a line end", path_);
  if (broken_) {
    if (::ftruncate(fd_, size_bytes_) != 0) return io_error("cannot take back a torn line", errno, path_);
    broken_ = false;
  }
  pending_.assign(line);
  pending_ += '\n';
  std::size_t done = 0;
  while (done < pending_.size()) {
    const ssize_t count = ::write(fd_, pending_.data() + done, pending_.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int code = errno;
      if (regular_ && done > 0 && ::ftruncate(fd_, size_bytes_) != 0) broken_ = true;
      return io_error("cannot write a line", code, path_);
    }
    done += static_cast<std::size_t>(count);
  }
  size_bytes_ += static_cast<std::int64_t>(pending_.size());
  return sync_each_line_ ? sync() : Status();
}

Status JsonlWriter::sync() {
  if (regular_ && ::fdatasync(fd_) != 0) return io_error("cannot sync the file", errno, path_);
  return {};
}

}  // namespace deepinfer
