// Which line first used an id, for any number of lines.
//
// An open-addressing hash table of 16-byte entries (80 bits of the id's hash, 48 bits of line number) in a
// file mapping: 23 to 46 bytes a line, which the kernel may write back and evict, so private memory stays
// flat. The file has no name and vanishes with the process. Two different ids that share 80 hash bits would
// be taken for duplicates: probability 4e-11 over ten million lines. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace deepinfer {

struct IdHash {
  std::uint64_t low = 0;
  std::uint16_t high = 0;
};
IdHash hash_id(std::string_view id);

class IdTable {
 public:
  /// `folder` holds the unnamed file. Errors: kIo.
  static Result<IdTable> create(const std::string& folder);
  IdTable(IdTable&& other) noexcept;
  IdTable& operator=(IdTable&&) = delete;
  IdTable(const IdTable&) = delete;
  ~IdTable();

  /// Makes `line` (1 .. 2^48-1) the owner of an id, unless it has one: returns the owner, `line` itself when
  /// it is new. Errors: kIo when the file cannot grow (disk full).
  Result<std::int64_t> claim(IdHash hash, std::int64_t line);
  std::int64_t size() const { return static_cast<std::int64_t>(used_); }

 private:
  struct Entry {
    std::uint64_t low;
    std::uint64_t high_and_line;  // 16 bits of hash above 48 bits of line; 0 = empty
  };
  IdTable() = default;
  Status map(std::size_t capacity);
  Status grow();
  /// claim() without growing.
  std::int64_t place(IdHash hash, std::int64_t line);
  void release();

  std::string folder_;
  int fd_ = -1;
  Entry* entries_ = nullptr;
  std::size_t capacity_ = 0;  // a power of two
  std::size_t used_ = 0;
};

}  // namespace deepinfer
