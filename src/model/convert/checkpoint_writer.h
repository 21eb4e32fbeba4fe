// Writes a model folder front to back without ever holding more than a piece of one tensor: shards, their
// index, and config.json last, so that a folder that was cut short does not open.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace deepinfer {

/// A tensor to be written. `write` is called once, when its turn comes, and appends exactly its bytes.
struct TensorSource {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;
  std::function<Status(SafetensorsWriter&)> write;

  std::int64_t bytes() const;
};

/// What was written.
struct WrittenCheckpoint {
  std::int64_t tensors = 0, shards = 0, bytes = 0;
};

/// Creates `folder`, which must not exist or be empty. Errors: kInvalidArgument when it is not empty.
Status prepare_checkpoint_folder(const std::string& folder);

/// Writes model-0000i-of-0000n.safetensors, model.safetensors.index.json and config.json into a prepared
/// folder. A shard ends before it would pass max_shard_bytes; a larger tensor gets a shard of its own.
Result<WrittenCheckpoint> write_checkpoint(const std::string& folder,
                                           const std::vector<TensorSource>& tensors,
                                           const std::string& config_text, std::int64_t max_shard_bytes);

}  // namespace deepinfer
