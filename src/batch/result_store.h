// The files of one batch run and their common invariant: OUT holds whole result lines only, OUT.journal
// vouches for a prefix of them (all but the last few after a crash), OUT.manifest.json says what run they
// belong to. A run can be killed at any moment and resumed; nothing that was durable is lost, nothing is
// written twice.
//
// Writing to "-" (stdout) or a device keeps no journal and no manifest. Not thread-safe, except is_done().
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "batch/id_table.h"
#include "batch/journal.h"
#include "io/json.h"
#include "io/jsonl.h"

namespace deepinfer {

enum class StoreMode {
  kFresh,        ///< refuses an output that has something in it
  kOverwrite,    ///< throws away what is there
  kResume,       ///< continues, or starts when there is nothing
  kRetryErrors,  ///< continues, after taking the error lines out
};

/// One result ready to be written.
struct ResultLine {
  std::int64_t line = 0;  ///< of the input
  std::string text;       ///< without a line end
  IdHash id;
  bool owns_id = false;
  bool is_error = false;
  std::uint32_t input_hash = 0;
};

class ResultStore {
 public:
  /// `manifest` describes the present run; a resume must match what is recorded (all but "created"). The ids
  /// of finished lines are claimed in `ids`. Errors: kInvalidArgument (output exists; manifest differs,
  /// naming the field), kCorrupt (files changed since), kIo.
  static Result<ResultStore> open(const std::string& output, StoreMode mode, const Json& manifest,
                                  IdTable& ids);

  /// The manifest in force: the recorded one of a resumed run.
  const Json& manifest() const { return manifest_; }
  /// Whether the input line has its result. One bit a line.
  bool is_done(std::int64_t line) const;
  std::int64_t done_count() const { return done_count_; }
  std::int64_t done_error_count() const { return done_error_count_; }
  /// Results of the crashed run that had to be dropped because only a part of them was on disk.
  std::int64_t dropped_count() const { return dropped_count_; }

  /// Call for every input line that is skipped because it is done, …
  void note_skipped(std::int64_t line, std::uint32_t input_hash);
  /// … and this at the end of the input: kInvalidArgument when the skipped lines are not those that were
  /// answered.
  Status check_skipped() const;

  /// Errors: kIo (disk full, …). What was appended before stays whole.
  Status append(const ResultLine& result);
  /// Makes everything appended durable.
  Status sync();
  /// Puts the lines of OUT into the order of the input (72 bytes of memory a line; only after retried
  /// errors).
  Status sort_by_line();

 private:
  ResultStore() = default;
  Status open_writer(const JsonlWriterOptions& options);
  Status load(IdTable& ids, bool drop_errors);
  /// Writes OUT and its journal anew from what `source` passes to its argument.
  using WriteRecord = std::function<Status(const JournalRecord&, std::string_view)>;
  Status rewrite(const std::function<Status(const WriteRecord&)>& source);
  Status finish_interrupted_rewrite();

  std::string output_;
  std::uint64_t run_hash_ = 0;
  Json manifest_;
  std::optional<JsonlWriter> writer_;
  std::optional<Journal> journal_;
  std::vector<bool> done_;
  std::int64_t done_count_ = 0;
  std::int64_t done_error_count_ = 0;
  std::int64_t dropped_count_ = 0;
  std::int64_t skipped_count_ = 0;
  std::uint64_t answered_sum_ = 0;  // over finished lines, in any order
  std::uint64_t skipped_sum_ = 0;
};

}  // namespace deepinfer
