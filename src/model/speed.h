// Measures a loaded network by itself, without engine or tokenizer: prompts and decode steps of chosen sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/decoder.h"
#include "model/step_cost.h"

namespace deepinfer {

struct SpeedOptions {
  std::vector<std::int64_t> prefill_lengths = {512};
  std::vector<std::int64_t> batches = {1, 8, 32};
  std::int64_t context = 512;  ///< positions behind the decoded rows
  int repetitions = 5;         ///< the median counts
  std::uint64_t seed = 1;      ///< of the random prompts
};

struct SpeedResult {
  std::string what;  ///< "prefill 512", "decode batch 8"
  std::int64_t rows = 0;
  double seconds = 0;  ///< median of one run
  double fastest = 0, slowest = 0;
  StepCost cost;  ///< of one run (prefill: the sum of its steps, weights once a step)
  double tokens_per_second() const { return static_cast<double>(rows) / seconds; }
};

/// Runs the measurements in order; `done` (optional) is called with each. Errors: the model's, or
/// kInvalidArgument when the cache the model was opened with is too small.
Result<std::vector<SpeedResult>> measure_speed(Decoder& model, const SpeedOptions& options,
                                               const std::function<void(const SpeedResult&)>& done);

/// Blocks and slots a model needs to be opened with for these measurements.
CacheSize speed_cache_size(const SpeedOptions& options);

}  // namespace deepinfer
