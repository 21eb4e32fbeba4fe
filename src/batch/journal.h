// OUT.journal: which input lines have a whole, verified result in OUT.
//
// An append-only file: a 48-byte header bound to the run's manifest, then one 48-byte record a result, in the
// order of OUT, each with its own checksum and the hash of its output line; plus a mark whenever both files
// were made durable. A reader trusts a record only together with the bytes it describes, so a crash at any
// moment leaves a prefix of whole results. Byte order is the machine's. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "batch/id_table.h"

namespace deepinfer {

struct JournalRecord {
  std::int64_t line = 0;          ///< of the input, from 1
  std::int64_t end = 0;           ///< offset in OUT behind this result's line end
  std::uint64_t output_hash = 0;  ///< of the result line without its line end
  std::uint32_t input_hash = 0;   ///< of the input line
  IdHash id;
  bool owns_id = false;  ///< false: the line has no id of its own (broken, or a duplicate)
  bool is_error = false;
};

std::uint64_t hash_output(std::string_view line);
std::uint32_t hash_input(std::string_view line);

class Journal {
 public:
  /// Opens or creates the file and locks it. Errors: kIo, also when another process holds it.
  static Result<Journal> open(const std::string& path);
  Journal(Journal&& other) noexcept;
  Journal& operator=(Journal&& other) noexcept;
  Journal(const Journal&) = delete;
  ~Journal();

  /// Nothing in it, not even a header.
  bool empty() const { return size_ == 0; }
  const std::string& path() const { return path_; }

  /// Forgets everything.
  Status clear();
  /// Forgets everything and writes a header for the run `run_hash`.
  Status start(std::uint64_t run_hash);

  struct LoadResult {
    std::int64_t record_count = 0;
    std::int64_t output_bytes = 0;  ///< where OUT's vouched-for part ends
    std::int64_t dropped = 0;       ///< records of results that a crash had not made durable
  };
  /// Reads the records, compares each with the bytes of the output file and passes the good ones on, in
  /// order. Cuts the journal behind the last good one; the caller cuts OUT at `output_bytes`. Errors:
  /// kCorrupt when the header belongs to another run, or when something that was durable has changed (OUT was
  /// edited).
  Result<LoadResult> load(std::uint64_t run_hash, const std::string& output_path,
                          const std::function<Status(const JournalRecord&)>& visit);

  /// Errors: kIo; a torn record is taken back.
  Status append(const JournalRecord& record);
  /// Call after OUT is durable up to `output_bytes`: marks that and makes the journal durable.
  Status sync(std::int64_t output_bytes);
  /// Gives the file its final name; the lock stays.
  Status rename_to(const std::string& path);

 private:
  Journal() = default;
  Status write_block(const void* block);

  std::string path_;
  int fd_ = -1;
  std::int64_t size_ = 0;
};

}  // namespace deepinfer
