// Writes a quantised copy of an unquantised checkpoint: the formats that published checkpoints use (FP8 tiles
// with ue8m0 scales, packed FP4 experts), so that a model can be trained or edited in BF16 and run quantised.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "model/config.h"

namespace deepinfer {

struct ConvertOptions {
  WeightQuantization quantization = {128, true};     ///< block 32 or 128
  std::int64_t shard_bytes = std::int64_t{5} << 30;  ///< a shard is closed before it grows beyond this
  std::function<void(std::int64_t done, std::int64_t total)> progress;  ///< tensors; may be empty
};

/// Reads folder `from` (BF16 or F32 weights without scales) and writes folder `to`, which must not exist or
/// be empty: shards, index, config.json with its quantization_config, and the other small files (tokenizer,
/// chat wording). Needs memory for one tensor at a time. Errors: kInvalidArgument for an already quantised
/// source or a used target, kIo, and whatever is wrong with the source.
Status convert_checkpoint(const std::string& from, const std::string& to, const ConvertOptions& options);

}  // namespace deepinfer
