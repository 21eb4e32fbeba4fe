#include "batch/result_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "batch/manifest.h"

namespace deepinfer {
namespace {

std::string journal_path(const std::string& output) {
  return output + ".journal";
}
// Where a rewrite is prepared before it takes the place of the files above.
std::string draft_path(const std::string& output) {
  return output + ".rewrite";
}
std::string draft_journal_path(const std::string& output) {
  return journal_path(output) + ".rewrite";
}

// Size of a regular file, -1 when it does not exist, nothing for pipes and devices.
std::optional<std::int64_t> file_size(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return -1;
  if (!S_ISREG(info.st_mode)) return std::nullopt;
  return static_cast<std::int64_t>(info.st_size);
}

// Depends on the set of lines only, not on their order.
std::uint64_t line_sum(std::int64_t line, std::uint32_t input_hash) {
  const std::uint64_t pair[2] = {static_cast<std::uint64_t>(line), input_hash};
  return XXH3_64bits(pair, sizeof pair);
}

JournalRecord record_of(const ResultLine& result, std::int64_t end) {
  JournalRecord record;
  record.line = result.line;
  record.end = end;
  record.output_hash = hash_output(result.text);
  record.input_hash = result.input_hash;
  record.id = result.id;
  record.owns_id = result.owns_id;
  record.is_error = result.is_error;
  return record;
}

// Reads [begin, end) of a file without the line end.
Status read_line(int fd, std::int64_t begin, std::int64_t end, std::string& text, const std::string& path) {
  text.resize(static_cast<std::size_t>(end - begin));
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::pread(fd, text.data() + done, text.size() - done,
                                  static_cast<off_t>(begin) + static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return io_error("cannot read the results back", count < 0 ? errno : EIO, path);
    done += static_cast<std::size_t>(count);
  }
  text.pop_back();
  return {};
}

// Closes a descriptor at the end of a scope.
struct FileDescriptor {
  int fd = -1;
  explicit FileDescriptor(const std::string& path) : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  FileDescriptor(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

Result<ResultStore> ResultStore::open(const std::string& output, StoreMode mode, const Json& manifest,
                                      IdTable& ids) {
  ResultStore store;
  store.output_ = output;
  store.manifest_ = manifest;
  const std::optional<std::int64_t> size = output == "-" ? std::nullopt : file_size(output);
  const bool resume = mode == StoreMode::kResume || mode == StoreMode::kRetryErrors;
  if (!size) {
    if (resume) return invalid_argument("only a file can be resumed", output);
    DI_TRY(store.open_writer({}));
    return store;
  }
  if (mode == StoreMode::kFresh && *size > 0) {
    return invalid_argument("the output exists; use --resume to continue it or --overwrite to replace it",
                            output);
  }
  DI_ASSIGN(store.journal_, Journal::open(journal_path(output)));
  if (resume) DI_TRY(store.finish_interrupted_rewrite());
  if (resume && !store.journal_->empty()) {
    DI_ASSIGN(std::optional<Json> recorded, read_manifest(output));
    if (!recorded)
      return not_found("the output has a journal but no manifest; use --overwrite to start over", output);
    if (const std::string difference = manifest_difference(*recorded, manifest); !difference.empty()) {
      return invalid_argument("this is not the run that wrote the output: " + difference,
                              manifest_path(output));
    }
    store.manifest_ = std::move(*recorded);
    store.run_hash_ = hash_output(to_json_text(store.manifest_));
    DI_TRY(store.load(ids, mode == StoreMode::kRetryErrors));
    return store;
  }
  if (resume && *size > 0) return not_found("the output has no journal, so it cannot be resumed", output);
  // The journal goes first: an output without one is never mistaken for a run.
  DI_TRY(store.journal_->clear());
  store.run_hash_ = hash_output(to_json_text(store.manifest_));
  DI_TRY(store.open_writer({.truncate = true}));
  DI_TRY(write_manifest(output, store.manifest_));
  DI_TRY(store.journal_->start(store.run_hash_));
  return store;
}

// The steps of a rewrite, in order: create OUT.rewrite, create its journal, fill both, rename OUT.rewrite to
// OUT, rename the journal. So a draft journal without a draft output only lacks the last step.
Status ResultStore::finish_interrupted_rewrite() {
  const bool draft = file_size(draft_path(output_)) != -1;
  const bool draft_journal = file_size(draft_journal_path(output_)) != -1;
  if (draft_journal && !draft) {
    DI_ASSIGN(Journal complete, Journal::open(draft_journal_path(output_)));
    DI_TRY(complete.rename_to(journal_path(output_)));
    *journal_ = std::move(complete);
    return {};
  }
  if (draft_journal) ::unlink(draft_journal_path(output_).c_str());
  if (draft) ::unlink(draft_path(output_).c_str());
  return {};
}

Status ResultStore::load(IdTable& ids, bool drop_errors) {
  std::int64_t errors = 0;
  const auto visit = [&](const JournalRecord& record) -> Status {
    errors += record.is_error ? 1 : 0;
    if (drop_errors && record.is_error) return {};
    const auto index = static_cast<std::size_t>(record.line);
    if (done_.size() <= index) done_.resize(std::max(index + 1, done_.size() * 2));
    done_[index] = true;
    done_count_ += 1;
    done_error_count_ += record.is_error ? 1 : 0;
    answered_sum_ += line_sum(record.line, record.input_hash);
    if (record.owns_id) DI_TRY(ids.claim(record.id, record.line));
    return {};
  };
  DI_ASSIGN(const Journal::LoadResult loaded, journal_->load(run_hash_, output_, visit));
  dropped_count_ = loaded.dropped;
  if (::truncate(output_.c_str(), static_cast<off_t>(loaded.output_bytes)) != 0) {
    return io_error("cannot cut the output", errno, output_);
  }
  if (drop_errors && errors > 0) {
    return rewrite([this](const WriteRecord& write) -> Status {
      FileDescriptor file(output_);
      if (file.fd < 0) return io_error("cannot open the file", errno, output_);
      std::string text;
      std::int64_t begin = 0;
      const auto copy = [&](const JournalRecord& record) -> Status {
        const std::int64_t start = std::exchange(begin, record.end);
        if (record.is_error) return {};
        DI_TRY(read_line(file.fd, start, record.end, text, output_));
        return write(record, text);
      };
      DI_TRY(journal_->load(run_hash_, output_, copy));
      return {};
    });
  }
  DI_TRY(open_writer({}));
  DI_CHECK(writer_->size_bytes() == loaded.output_bytes, "the output was cut at the end of a line");
  return {};
}

Status ResultStore::rewrite(const std::function<Status(const WriteRecord&)>& source) {
  writer_.reset();
  {
    DI_ASSIGN(JsonlWriter draft, JsonlWriter::open(draft_path(output_), {.truncate = true}));
    DI_ASSIGN(Journal draft_journal, Journal::open(draft_journal_path(output_)));
    DI_TRY(draft_journal.start(run_hash_));
    const auto write = [&](const JournalRecord& record, std::string_view text) -> Status {
      DI_TRY(draft.append(text));
      JournalRecord moved = record;
      moved.end = draft.size_bytes();
      return draft_journal.append(moved);
    };
    DI_TRY(source(write));
    DI_TRY(draft.sync());
    DI_TRY(draft_journal.sync(draft.size_bytes()));
    if (std::rename(draft_path(output_).c_str(), output_.c_str()) != 0) {
      return io_error("cannot put the rewritten results in place", errno, output_);
    }
    DI_TRY(draft_journal.rename_to(journal_path(output_)));
    *journal_ = std::move(draft_journal);
  }
  return open_writer({});
}

Status ResultStore::open_writer(const JsonlWriterOptions& options) {
  DI_ASSIGN(JsonlWriter writer, JsonlWriter::open(output_, options));
  writer_.emplace(std::move(writer));
  return {};
}

bool ResultStore::is_done(std::int64_t line) const {
  const auto index = static_cast<std::size_t>(line);
  return index < done_.size() && done_[index];
}

void ResultStore::note_skipped(std::int64_t line, std::uint32_t input_hash) {
  skipped_count_ += 1;
  skipped_sum_ += line_sum(line, input_hash);
}

Status ResultStore::check_skipped() const {
  if (skipped_count_ == done_count_ && skipped_sum_ == answered_sum_) return {};
  return invalid_argument(
      "the input is not the one that was answered before: lines that have a result changed", output_);
}

Status ResultStore::append(const ResultLine& result) {
  DI_TRY(writer_->append(result.text));
  if (!journal_) return {};
  return journal_->append(record_of(result, writer_->size_bytes()));
}

Status ResultStore::sync() {
  DI_TRY(writer_->sync());
  if (!journal_) return {};
  return journal_->sync(writer_->size_bytes());
}

Status ResultStore::sort_by_line() {
  if (!journal_) return {};
  struct Place {
    JournalRecord record;
    std::int64_t begin;
  };
  std::vector<Place> places;
  std::int64_t begin = 0;
  DI_TRY(journal_->load(run_hash_, output_, [&](const JournalRecord& record) -> Status {
    places.push_back({record, std::exchange(begin, record.end)});
    return {};
  }));
  const auto by_line = [](const Place& a, const Place& b) { return a.record.line < b.record.line; };
  if (std::is_sorted(places.begin(), places.end(), by_line)) return {};
  std::sort(places.begin(), places.end(), by_line);
  return rewrite([&](const WriteRecord& write) -> Status {
    FileDescriptor file(output_);
    if (file.fd < 0) return io_error("cannot open the file", errno, output_);
    std::string text;
    for (const Place& place : places) {
      DI_TRY(read_line(file.fd, place.begin, place.record.end, text, output_));
      DI_TRY(write(place.record, text));
    }
    return {};
  });
}

}  // namespace deepinfer
