#include "model/convert/checkpoint_writer.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "io/json.h"

namespace deepinfer {
namespace {

Status write_text_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) return Error{ErrorCode::kIo, "cannot write the file", path};
  return {};
}

/// First tensor of each shard, and the end.
std::vector<std::size_t> shard_borders(const std::vector<TensorSource>& tensors,
                                       std::int64_t max_shard_bytes) {
  std::vector<std::size_t> borders = {0};
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t next = tensors[i].bytes();
    if (i > borders.back() && bytes + next > max_shard_bytes) {
      borders.push_back(i);
      bytes = 0;
    }
    bytes += next;
  }
  borders.push_back(tensors.size());
  return borders;
}

}  // namespace

std::int64_t TensorSource::bytes() const {
  return element_count(shape).value_or(0) * static_cast<std::int64_t>(dtype_size_bytes(dtype));
}

Status prepare_checkpoint_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Error{ErrorCode::kIo, "cannot create the folder: " + error.message(), folder};
  if (!std::filesystem::is_empty(folder, error) || error) {
    return invalid_argument("the folder is not empty; name a new one", folder);
  }
  return {};
}

Result<WrittenCheckpoint> write_checkpoint(const std::string& folder,
                                           const std::vector<TensorSource>& tensors,
                                           const std::string& config_text, std::int64_t max_shard_bytes) {
  DI_CHECK(!tensors.empty() && max_shard_bytes > 0, "nothing to write");
  const std::vector<std::size_t> borders = shard_borders(tensors, max_shard_bytes);
  const std::size_t shards = borders.size() - 1;
  WrittenCheckpoint written;
  written.shards = static_cast<std::int64_t>(shards);
  JsonObject weight_map;
  for (std::size_t shard = 0; shard < shards; ++shard) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
    SafetensorsWriter writer(folder + "/" + name);
    writer.set_metadata("format", "pt");
    for (std::size_t i = borders[shard]; i < borders[shard + 1]; ++i) {
      DI_TRY(writer.declare(tensors[i].name, tensors[i].dtype, tensors[i].shape));
      weight_map.emplace_back(tensors[i].name, name);
      written.bytes += tensors[i].bytes();
      ++written.tensors;
    }
    for (std::size_t i = borders[shard]; i < borders[shard + 1]; ++i) DI_TRY(tensors[i].write(writer));
    DI_TRY(writer.finish());
  }
  Json metadata = Json::object(), index = Json::object();
  metadata.set("total_size", written.bytes);
  index.set("metadata", std::move(metadata));
  index.set("weight_map", Json(std::move(weight_map)));
  DI_TRY(write_text_file(folder + "/model.safetensors.index.json", to_json_text(index, 2) + "\n"));
  DI_TRY(write_text_file(folder + "/config.json", config_text));
  return written;
}

}  // namespace deepinfer
