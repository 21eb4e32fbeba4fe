// What a model is made of and what a run of it needs, from its configuration alone: the numbers behind
// `deepinfer inspect` and `deepinfer plan`. Pure functions; no weight is touched.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/json.h"
#include "model/cache.h"
#include "model/config.h"
#include "model/numerics.h"
#include "model/tensor_list.h"

namespace deepinfer {

/// Totals over the tensors of one kind. Parameters count the two values of a packed FP4 byte and no scales;
/// bytes count everything stored.
struct KindTotals {
  TensorKind kind = TensorKind::kNorm;
  std::int64_t tensors = 0, parameters = 0, bytes = 0;
};

struct ModelReport {
  std::vector<KindTotals> kinds;  ///< kinds that occur, in the order of TensorKind
  std::int64_t tensors = 0, parameters = 0, bytes = 0;
  std::int64_t backbone_parameters = 0;  ///< without Engram tables, draft module and vision
  std::int64_t engram_parameters = 0;    ///< rows of the Engram tables
  std::int64_t draft_parameters = 0, vision_parameters = 0;
  /// Backbone parameters that one token passes: all but the embedding table and the experts it does not
  /// choose.
  std::int64_t active_parameters = 0;
  double history_bytes_per_token = 0;  ///< pools and index keys, with the rounding of the official numerics
  std::int64_t window_bytes = 0;       ///< a sequence's window rings
  std::int64_t tail_bytes = 0;         ///< a sequence's unfinished compressor groups
};

ModelReport describe_model(const ModelConfig& config);

/// What a run should be able to do.
struct PlanRequest {
  std::int64_t context = 32768;  ///< positions of each sequence, prompt and answer
  std::int64_t sequences = 1;    ///< at the same time
  std::int64_t rows = 512;       ///< tokens computed in one step
  int threads = 1;               ///< that compute
  Numerics numerics = Numerics::official();
  bool draft = false;                        ///< load the draft module
  bool vision = false;                       ///< load the picture tower
  std::optional<std::int64_t> memory_bytes;  ///< what may be used; absent: only say what is needed
};

struct MemoryPlan {
  PlanRequest request;
  std::int64_t weight_bytes = 0;  ///< resident: packed for the kernels, with the directory of tensors
  std::int64_t mapped_bytes =
      0;  ///< Engram tables: read row by row from the file, resident only as page cache
  std::int64_t history_bytes = 0;    ///< cache blocks of all sequences
  std::int64_t sequence_bytes = 0;   ///< window rings and compressor tails of all sequences
  std::int64_t workspace_bytes = 0;  ///< activations and kernel scratch of a step
  std::int64_t total_bytes = 0;      ///< all but mapped_bytes
  /// With memory_bytes only:
  bool fits = true;
  std::int64_t largest_context = 0;    ///< for the wanted number of sequences; 0 = none
  std::int64_t largest_sequences = 0;  ///< for the wanted context; 0 = none
};

/// Errors: kInvalidArgument for a request outside the model's limits.
Result<MemoryPlan> plan_memory(const ModelConfig& config, const PlanRequest& request);

/// Activations and scratch memory of one step: request.rows rows of sequences up to request.context
/// positions.
std::int64_t workspace_bytes(const ModelConfig& config, const PlanRequest& request);

/// Texts for people and JSON objects for programs; sizes in JSON are plain integers.
std::string report_text(const ModelConfig& config, const ModelReport& report);
Json report_json(const ModelConfig& config, const ModelReport& report);
std::string plan_text(const ModelConfig& config, const MemoryPlan& plan);
Json plan_json(const MemoryPlan& plan);

/// "148.65 GiB", "2.58 MiB", "890 bytes".
std::string size_text(double bytes);
/// "284.3 B", "26.5 M": parameters in powers of ten.
std::string count_text(double count);

}  // namespace deepinfer
