#include "batch/id_table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

namespace deepinfer {
namespace {

constexpr std::size_t kFirstCapacity = 1 << 14;
constexpr int kLineBits = 48;
constexpr std::uint64_t kLineMask = (std::uint64_t{1} << kLineBits) - 1;

Result<int> open_unnamed(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  std::string name = folder + "/.deepinfer-ids-XXXXXX";  // file systems without O_TMPFILE
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named < 0) return io_error("cannot create a working file", errno, folder);
  ::unlink(name.c_str());
  return named;
}

}  // namespace

IdHash hash_id(std::string_view id) {
  const XXH128_hash_t hash = XXH3_128bits(id.data(), id.size());
  return {hash.low64, static_cast<std::uint16_t>(hash.high64)};
}

Result<IdTable> IdTable::create(const std::string& folder) {
  IdTable table;
  table.folder_ = folder.empty() ? "." : folder;
  DI_TRY(table.map(kFirstCapacity));
  return table;
}

IdTable::IdTable(IdTable&& other) noexcept
    : folder_(std::move(other.folder_)),
      fd_(std::exchange(other.fd_, -1)),
      entries_(std::exchange(other.entries_, nullptr)),
      capacity_(std::exchange(other.capacity_, 0)),
      used_(std::exchange(other.used_, 0)) {}

IdTable::~IdTable() {
  if (entries_ != nullptr) ::munmap(entries_, capacity_ * sizeof(Entry));
  if (fd_ >= 0) ::close(fd_);
}

Status IdTable::map(std::size_t capacity) {
  DI_ASSIGN(const int fd, open_unnamed(folder_));
  const std::size_t bytes = capacity * sizeof(Entry);
  // Reserved now: on a full disk a write into a hole of the mapping would kill the process.
  const int failure = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  if (failure != 0) {
    ::close(fd);
    return io_error("cannot reserve room for the table of ids", failure, folder_);
  }
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    const int error = errno;
    ::close(fd);
    return io_error("cannot map the table of ids", error, folder_);
  }
  fd_ = fd;
  entries_ = static_cast<Entry*>(address);
  capacity_ = capacity;
  used_ = 0;
  return {};
}

Status IdTable::grow() {
  IdTable larger;
  larger.folder_ = folder_;
  DI_TRY(larger.map(capacity_ * 2));
  for (std::size_t i = 0; i < capacity_; ++i) {
    const Entry& entry = entries_[i];
    if (entry.high_and_line == 0) continue;
    const auto line = static_cast<std::int64_t>(entry.high_and_line & kLineMask);
    larger.place({entry.low, static_cast<std::uint16_t>(entry.high_and_line >> kLineBits)}, line);
  }
  std::swap(fd_, larger.fd_);
  std::swap(entries_, larger.entries_);
  std::swap(capacity_, larger.capacity_);
  std::swap(used_, larger.used_);
  return {};
}

Result<std::int64_t> IdTable::claim(IdHash hash, std::int64_t line) {
  DI_CHECK(line > 0 && static_cast<std::uint64_t>(line) <= kLineMask, "line number ", line);
  if (used_ * 10 >= capacity_ * 7) DI_TRY(grow());
  const std::int64_t owner = place(hash, line);
  // The pages go back to the page cache at once: the file grows with the input, resident memory must not, and
  // one fault can bring in a whole folio. A few microseconds a line.
  if (owner == line) release();
  return owner;
}

void IdTable::release() {
  ::madvise(entries_, capacity_ * sizeof(Entry), MADV_DONTNEED);
}

std::int64_t IdTable::place(IdHash hash, std::int64_t line) {
  for (std::size_t i = hash.low & (capacity_ - 1);; i = (i + 1) & (capacity_ - 1)) {
    Entry& entry = entries_[i];
    if (entry.high_and_line == 0) {
      entry = {hash.low, (std::uint64_t{hash.high} << kLineBits) | static_cast<std::uint64_t>(line)};
      ++used_;
      return line;
    }
    if (entry.low == hash.low && entry.high_and_line >> kLineBits == hash.high) {
      return static_cast<std::int64_t>(entry.high_and_line & kLineMask);
    }
  }
}

}  // namespace deepinfer
