// A model folder: config.json, the safetensors shards and, for sharded models, model.safetensors.index.json.
//
// Opening maps and checks every shard's header and the index against each other; no weight is read. What the
// tensors should be called and how large they should be is the model's business (model/tensor_list.h). Owns
// all mappings; movable; const members may be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "io/safetensors.h"

namespace deepinfer {

class Checkpoint {
 public:
  /// Takes model.safetensors.index.json when the folder has one, else model.safetensors, else the folder's
  /// only
  /// *.safetensors file. Errors: everything that is wrong in one Error (at most 40 lines): unreadable or
  /// damaged shards, missing shards, tensors that the index and the shards disagree about.
  static Result<Checkpoint> open(const std::string& folder, const SafetensorsOptions& options = {});

  const std::string& folder() const { return folder_; }
  /// The text of config.json; at most 16 MiB.
  const std::string& config_text() const { return config_text_; }
  const std::vector<SafetensorsFile>& shards() const { return shards_; }

  std::size_t tensor_count() const { return by_name_.size(); }
  /// All names, ascending.
  std::vector<std::string_view> names() const;
  /// nullptr when there is no such tensor.
  const TensorView* find(std::string_view name) const;
  /// The shard that holds `name`, or -1.
  int shard_of(std::string_view name) const;

  /// Bytes of all tensors.
  std::uint64_t tensor_bytes() const;

  /// 32 hex digits that change when the model does: XXH3-128 over a version tag, config.json, the index file,
  /// and of each shard in name order its name, size, header and 17 samples of 64 KiB spread evenly over the
  /// data (all of it when the data is smaller). Milliseconds for any model; a change that touches no sample
  /// and no size is not seen.
  std::string fingerprint() const;
  /// 32 hex digits over config.json, the index file and every byte of every shard. Reads everything.
  std::string full_hash() const;

 private:
  std::string folder_;
  std::string config_text_;
  std::string index_text_;
  std::vector<SafetensorsFile> shards_;  // ascending file name
  struct Place {
    int shard;
    std::size_t tensor;
  };
  std::unordered_map<std::string, Place> by_name_;
};

/// The text of `folder`/config.json, at most 16 MiB. For commands that need no weights.
Result<std::string> read_config_text(const std::string& folder);

}  // namespace deepinfer
