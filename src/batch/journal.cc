#include "batch/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace deepinfer {
namespace {

constexpr std::uint64_t kMagic = 0x314C4E524A4944;  // "DIJRNL1"

enum BlockFlags : std::uint16_t { kOwnsId = 1, kIsError = 2, kSyncMark = 4 };

// As on disk. The header is a block with `line` = magic and `end` = hash of the manifest.
struct Block {
  std::uint64_t line = 0;
  std::uint64_t end = 0;
  std::uint64_t output_hash = 0;
  std::uint64_t id_low = 0;
  std::uint16_t id_high = 0;
  std::uint16_t flags = 0;
  std::uint32_t input_hash = 0;
  std::uint64_t check = 0;

  std::uint64_t expected_check() const { return XXH3_64bits(this, offsetof(Block, check)); }
};
static_assert(sizeof(Block) == 48);

// Reads lines of known end offsets front to back and hashes them.
class OutputVerifier {
 public:
  static Result<OutputVerifier> open(const std::string& path) {
    OutputVerifier verifier;
    verifier.file_ = std::fopen(path.c_str(), "rbe");
    if (verifier.file_ == nullptr && errno != ENOENT) return io_error("cannot open the file", errno, path);
    return verifier;
  }
  OutputVerifier(OutputVerifier&& other) noexcept
      : file_(std::exchange(other.file_, nullptr)), offset_(other.offset_), text_(std::move(other.text_)) {}
  OutputVerifier(const OutputVerifier&) = delete;
  ~OutputVerifier() {
    if (file_ != nullptr) std::fclose(file_);
  }

  // Whether the next line ends at `end` and has this hash.
  bool next_line_is(std::uint64_t end, std::uint64_t hash) {
    if (file_ == nullptr || end <= offset_) return false;
    const std::uint64_t size = end - offset_;
    // A length that lies must not cost memory: read in pieces.
    text_.clear();
    for (std::uint64_t left = size; left > 0;) {
      const std::size_t piece = static_cast<std::size_t>(std::min<std::uint64_t>(left, 1 << 20));
      const std::size_t before = text_.size();
      text_.resize(before + piece);
      if (std::fread(text_.data() + before, 1, piece, file_) != piece) return false;
      left -= piece;
    }
    offset_ = end;
    if (text_.back() != '\n') return false;
    text_.pop_back();
    return hash_output(text_) == hash;
  }

 private:
  OutputVerifier() = default;
  std::FILE* file_ = nullptr;
  std::uint64_t offset_ = 0;
  std::string text_;
};

}  // namespace

std::uint64_t hash_output(std::string_view line) {
  return XXH3_64bits(line.data(), line.size());
}
std::uint32_t hash_input(std::string_view line) {
  return static_cast<std::uint32_t>(XXH3_64bits(line.data(), line.size()));
}

Result<Journal> Journal::open(const std::string& path) {
  Journal journal;
  journal.path_ = path;
  journal.fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (journal.fd_ < 0) return io_error("cannot open the journal", errno, path);
  if (::flock(journal.fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return Error{ErrorCode::kIo, "another run is writing this output", path};
    return io_error("cannot lock the journal", errno, path);
  }
  struct stat info = {};
  if (::fstat(journal.fd_, &info) != 0) return io_error("cannot read the journal", errno, path);
  journal.size_ = static_cast<std::int64_t>(info.st_size);
  // A header torn by a crash: nothing was recorded yet.
  if (journal.size_ < static_cast<std::int64_t>(sizeof(Block))) journal.size_ = 0;
  return journal;
}

Journal::Journal(Journal&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

Journal& Journal::operator=(Journal&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    path_ = std::move(other.path_);
    fd_ = std::exchange(other.fd_, -1);
    size_ = other.size_;
  }
  return *this;
}

Journal::~Journal() {
  if (fd_ >= 0) ::close(fd_);
}

Status Journal::write_block(const void* block) {
  Block copy;
  std::memcpy(static_cast<void*>(&copy), block, sizeof copy);
  copy.check = copy.expected_check();
  std::size_t done = 0;
  while (done < sizeof copy) {
    const ssize_t count = ::pwrite(fd_, reinterpret_cast<const char*>(&copy) + done, sizeof copy - done,
                                   static_cast<off_t>(size_) + static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int failure = errno;
      if (::ftruncate(fd_, static_cast<off_t>(size_)) != 0)
        return io_error("cannot cut the journal", errno, path_);
      return io_error("cannot write the journal", failure, path_);
    }
    done += static_cast<std::size_t>(count);
  }
  size_ += sizeof copy;
  return {};
}

Status Journal::clear() {
  if (::ftruncate(fd_, 0) != 0) return io_error("cannot cut the journal", errno, path_);
  size_ = 0;
  return {};
}

Status Journal::start(std::uint64_t run_hash) {
  DI_TRY(clear());
  Block header;
  header.line = kMagic;
  header.end = run_hash;
  return write_block(&header);
}

Result<Journal::LoadResult> Journal::load(std::uint64_t run_hash, const std::string& output_path,
                                          const std::function<Status(const JournalRecord&)>& visit) {
  DI_ASSIGN(OutputVerifier verifier, OutputVerifier::open(output_path));
  std::vector<Block> blocks(1 << 14);
  LoadResult out;
  std::int64_t good_bytes = 0;      // of the journal
  std::optional<std::int64_t> bad;  // line whose result is the first that does not hold
  for (std::int64_t offset = 0; offset < size_;) {
    const ssize_t count =
        ::pread(fd_, blocks.data(), blocks.size() * sizeof(Block), static_cast<off_t>(offset));
    if (count < 0) return io_error("cannot read the journal", errno, path_);
    const std::size_t whole = static_cast<std::size_t>(count) / sizeof(Block);
    if (whole == 0) break;  // a torn block at the end
    for (std::size_t i = 0; i < whole; ++i) {
      const Block& block = blocks[i];
      const bool intact = block.check == block.expected_check();
      if (offset == 0 && i == 0) {
        if (!intact || block.line != kMagic) return corrupt("not a journal of this program", path_);
        if (block.end != run_hash)
          return corrupt("belongs to another run than the manifest beside it", path_);
        good_bytes = sizeof(Block);
        continue;
      }
      if (bad) {
        // Whatever lies before a mark was durable, so no crash explains a difference.
        if (intact && (block.flags & kSyncMark) != 0) {
          return corrupt(
              fmt::format("the result of input line {} (at byte {}) is not what was written: the file was "
                          "changed. Restore it, or start over with --overwrite",
                          *bad, out.output_bytes),
              output_path);
        }
        out.dropped += 1;
        continue;
      }
      if (intact && (block.flags & kSyncMark) != 0) {
        good_bytes = offset + static_cast<std::int64_t>((i + 1) * sizeof(Block));
        continue;
      }
      if (!intact || !verifier.next_line_is(block.end, block.output_hash)) {
        bad = static_cast<std::int64_t>(block.line);
        out.dropped += 1;
        continue;
      }
      JournalRecord record;
      record.line = static_cast<std::int64_t>(block.line);
      record.end = static_cast<std::int64_t>(block.end);
      record.output_hash = block.output_hash;
      record.input_hash = block.input_hash;
      record.id = {block.id_low, block.id_high};
      record.owns_id = (block.flags & kOwnsId) != 0;
      record.is_error = (block.flags & kIsError) != 0;
      DI_TRY(visit(record));
      out.record_count += 1;
      out.output_bytes = record.end;
      good_bytes = offset + static_cast<std::int64_t>((i + 1) * sizeof(Block));
    }
    offset += static_cast<std::int64_t>(whole * sizeof(Block));
  }
  if (good_bytes == 0) return corrupt("not a journal of this program", path_);
  if (good_bytes != size_ && ::ftruncate(fd_, static_cast<off_t>(good_bytes)) != 0) {
    return io_error("cannot cut the journal", errno, path_);
  }
  size_ = good_bytes;
  return out;
}

Status Journal::append(const JournalRecord& record) {
  Block block;
  block.line = static_cast<std::uint64_t>(record.line);
  block.end = static_cast<std::uint64_t>(record.end);
  block.output_hash = record.output_hash;
  block.id_low = record.id.low;
  block.id_high = record.id.high;
  block.flags = static_cast<std::uint16_t>((record.owns_id ? kOwnsId : 0) | (record.is_error ? kIsError : 0));
  block.input_hash = record.input_hash;
  return write_block(&block);
}

Status Journal::sync(std::int64_t output_bytes) {
  Block mark;
  mark.end = static_cast<std::uint64_t>(output_bytes);
  mark.flags = kSyncMark;
  DI_TRY(write_block(&mark));
  if (::fdatasync(fd_) != 0) return io_error("cannot sync the journal", errno, path_);
  return {};
}

Status Journal::rename_to(const std::string& path) {
  if (std::rename(path_.c_str(), path.c_str()) != 0)
    return io_error("cannot rename the journal", errno, path_);
  path_ = path;
  return {};
}

}  // namespace deepinfer
