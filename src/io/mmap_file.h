// A file mapped read-only into memory. Owns the mapping; movable, not copyable. Opening costs no reads: pages
// come in when they are touched. const members may be called from any thread. A file that is truncated by
// someone else while it is mapped raises SIGBUS on access, as with every mapping: model files must not be
// changed while in use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace deepinfer {

/// How the pages will be used; a hint to the kernel, never an error.
enum class MmapAdvice {
  kNormal,
  kSequential,  // read once from front to back: checksums, conversion
  kRandom,      // few bytes here and there: Engram rows
  kWillNeed,    // start reading now
  kDontNeed,    // the pages may be dropped again
};

class MmapFile {
 public:
  /// Errors: kNotFound when there is no such file, kInvalidArgument for a folder or a device, kIo otherwise;
  /// all name the path. An empty file gives an empty span.
  static Result<MmapFile> open(const std::string& path);

  MmapFile() = default;
  MmapFile(MmapFile&& other) noexcept;
  MmapFile& operator=(MmapFile&& other) noexcept;
  MmapFile(const MmapFile&) = delete;
  MmapFile& operator=(const MmapFile&) = delete;
  ~MmapFile();

  std::span<const std::byte> bytes() const { return {data_, size_bytes_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_bytes_}; }
  std::size_t size_bytes() const { return size_bytes_; }
  const std::string& path() const { return path_; }

  /// Advice for bytes [offset, offset + size_bytes), widened to whole pages and cut at the end of the file.
  void advise(std::size_t offset, std::size_t size_bytes, MmapAdvice advice) const;

 private:
  void unmap();
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

/// The whole of a small text file (configuration, index). Refuses files above `max_bytes` before reading
/// them.
Result<std::string> read_text_file(const std::string& path, std::size_t max_bytes);

}  // namespace deepinfer
