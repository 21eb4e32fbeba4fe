// The offline runner: a file of requests in, a file of results out, over any engine.
//
// The life of a line: the reader thread parses it and claims its id -> a worker checks and encodes it -> the
// engine answers -> the writer thread renders the result, appends it to OUT and the journal, and lets the
// next line in. At most `window` lines (and `window_bytes` of them) are between reader and writer, so memory
// does not depend on the length of the input, and the first forward starts after the first lines were read.
// A line that cannot be served ends as one error line; only the disk, the input or a signal end the run.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "api/openai_request.h"
#include "api/prompt_codec.h"
#include "base/result.h"
#include "batch/progress.h"
#include "batch/result_store.h"
#include "deepinfer/engine.h"
#include "io/json.h"

namespace deepinfer {

struct BatchOptions {
  std::string input;   ///< "-" = stdin
  std::string output;  ///< "-" = stdout
  StoreMode mode = StoreMode::kFresh;
  bool ordered = false;      ///< results in input order rather than as they finish
  bool strict = true;        ///< unknown fields are errors
  bool run_details = false;  ///< cached tokens and timing in every result
  RequestDefaults defaults;
  std::string model_name;  ///< the `model` of every result
  /// What the run depends on beside the input and `defaults`: model hash, numerics, context, engine seed, …
  Json identity = Json::object();
  std::int64_t window = 1024;             ///< lines read but not written
  std::int64_t window_bytes = 256 << 20;  ///< of input text in these lines; one line always fits
  std::size_t max_line_bytes = 64 << 20;  ///< longer lines are error lines
  int tokenise_threads = 2;
  double sync_seconds = 1;        ///< results are durable at the latest after this
  double stop_grace_seconds = 2;  ///< after a stop, how long running lines may still finish
  /// Called about every `progress_seconds` with a progress line; may be empty.
  std::function<void(const std::string&)> on_progress;
  double progress_seconds = 10;
  std::optional<std::int64_t> created;  ///< Unix seconds for `created`; absent = now
};

/// Runs the batch to its end, or until `stop` becomes true. Errors are of the run itself: input or output
/// cannot be opened, disk full, a resume that does not match. What was written by then stays and can be
/// resumed. `engine` must have no other user.
Result<BatchReport> run_batch(EngineInterface& engine, const PromptCodec& codec, const BatchOptions& options,
                              const std::atomic<bool>& stop);

}  // namespace deepinfer
