#include "io/mmap_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace deepinfer {
namespace {

struct OpenFile {
  int fd = -1;
  std::size_t size_bytes = 0;
  OpenFile() = default;
  OpenFile(OpenFile&& other) noexcept : fd(std::exchange(other.fd, -1)), size_bytes(other.size_bytes) {}
  OpenFile& operator=(OpenFile&& other) noexcept {
    std::swap(fd, other.fd);
    std::swap(size_bytes, other.size_bytes);
    return *this;
  }
  ~OpenFile() {
    if (fd >= 0) ::close(fd);
  }
};

Result<OpenFile> open_regular(const std::string& path) {
  OpenFile file;
  file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file.fd < 0) {
    const int code = errno;
    if (code == ENOENT || code == ENOTDIR) return not_found("no such file", path);
    return io_error("cannot open the file", code, path);
  }
  struct stat info = {};
  if (::fstat(file.fd, &info) != 0) return io_error("cannot read the file's size", errno, path);
  if (S_ISDIR(info.st_mode)) return invalid_argument("is a folder, expected a file", path);
  if (!S_ISREG(info.st_mode)) return invalid_argument("is not a regular file", path);
  file.size_bytes = static_cast<std::size_t>(info.st_size);
  return file;
}

}  // namespace

Result<MmapFile> MmapFile::open(const std::string& path) {
  DI_ASSIGN(const OpenFile file, open_regular(path));
  MmapFile mapped;
  mapped.path_ = path;
  if (file.size_bytes == 0) return mapped;
  void* address = ::mmap(nullptr, file.size_bytes, PROT_READ, MAP_SHARED, file.fd, 0);
  if (address == MAP_FAILED) return io_error("cannot map the file into memory", errno, path);
  mapped.data_ = static_cast<const std::byte*>(address);
  mapped.size_bytes_ = file.size_bytes;
  return mapped;
}

MmapFile::MmapFile(MmapFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

MmapFile& MmapFile::operator=(MmapFile&& other) noexcept {
  if (this != &other) {
    unmap();
    path_ = std::move(other.path_);
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
  }
  return *this;
}

MmapFile::~MmapFile() {
  unmap();
}

void MmapFile::unmap() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_bytes_);
  data_ = nullptr;
}

void MmapFile::advise(std::size_t offset, std::size_t size_bytes, MmapAdvice advice) const {
  if (data_ == nullptr || offset >= size_bytes_) return;
  int flag = MADV_NORMAL;
  switch (advice) {
    case MmapAdvice::kNormal:
      flag = MADV_NORMAL;
      break;
    case MmapAdvice::kSequential:
      flag = MADV_SEQUENTIAL;
      break;
    case MmapAdvice::kRandom:
      flag = MADV_RANDOM;
      break;
    case MmapAdvice::kWillNeed:
      flag = MADV_WILLNEED;
      break;
    case MmapAdvice::kDontNeed:
      flag = MADV_DONTNEED;
      break;
  }
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t end = offset + std::min(size_bytes, size_bytes_ - offset);
  const std::size_t begin = offset / page * page;
  ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, flag);
}

Result<std::string> read_text_file(const std::string& path, std::size_t max_bytes) {
  DI_ASSIGN(const OpenFile file, open_regular(path));
  if (file.size_bytes > max_bytes)
    return invalid_argument(
        fmt::format("the file has {} bytes, more than the {} allowed here", file.size_bytes, max_bytes),
        path);
  std::string text(file.size_bytes, '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::read(file.fd, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return io_error("cannot read the file", errno, path);
    if (count == 0) break;  // it shrank meanwhile: the parser will say what is missing
    done += static_cast<std::size_t>(count);
  }
  text.resize(done);
  return text;
}

}  // namespace deepinfer
