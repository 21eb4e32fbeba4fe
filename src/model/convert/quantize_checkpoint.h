// Writes a quantised copy of an unquantised checkpoint: what the published checkpoints keep in FP8 and FP4
// goes there, the rest is copied byte for byte. docs/convert.md says which tensor gets which format.
#pragma once

#include <cstdint>
#include <string>

#include "model/convert/checkpoint_writer.h"

namespace deepinfer {

struct QuantizeOptions {
  std::int64_t block = 0;   ///< edge of the FP8 tiles, 32 or 128; 0: 128 for V4, 32 for V4.1, as published
  bool fp4_experts = true;  ///< false: routed experts in FP8 like the other linears
  std::int64_t max_shard_bytes = std::int64_t{5} << 30;
};

/// Reads `source`, writes `target` (new or empty). Needs memory for a stripe of one matrix only. Errors:
/// kInvalidArgument for a source that is quantised already or a target with files in it, kUnsupported for
/// widths the formats cannot hold, kCorrupt for weights that are not finite.
Result<WrittenCheckpoint> quantize_checkpoint(const std::string& source, const std::string& target,
                                              const QuantizeOptions& options);

}  // namespace deepinfer
