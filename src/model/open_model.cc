#include "model/open_model.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>

#include "io/mmap_file.h"
#include "model/deepseek_v4/deepseek_v4.h"
#include "model/deepseek_v41/deepseek_v41.h"
#include "model/tensor_list.h"
#include "tokenizer/token_map.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

constexpr std::int64_t kDefaultBlocks = 128;  // 32,768 positions
constexpr std::int64_t kDefaultSlots = 32;

// The Engram token map: engram_token_map.i32 in the folder (little-endian int32 per token), else derived from
// the tokenizer.
Result<std::vector<std::int32_t>> load_token_map(const std::string& folder, const ModelConfig& config) {
  const std::string path = folder + "/engram_token_map.i32";
  std::vector<std::int32_t> map;
  if (std::filesystem::exists(path)) {
    DI_ASSIGN(const MmapFile file, MmapFile::open(path));
    map.resize(file.size_bytes() / 4);
    std::memcpy(map.data(), file.bytes().data(), map.size() * 4);
  } else {
    DI_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(folder + "/tokenizer.json"));
    DI_ASSIGN(TokenMap derived, derive_token_map(tokenizer));
    map = std::move(derived.map);
  }
  if (static_cast<std::int64_t>(map.size()) != config.vocab_size) {
    return corrupt(fmt::format("the Engram token map has {} entries for a vocabulary of {}", map.size(),
                               config.vocab_size),
                   folder);
  }
  return map;
}

}  // namespace

Result<std::unique_ptr<Decoder>> open_model(const std::string& folder, const ModelOptions& options) {
  DI_ASSIGN(Checkpoint checkpoint, Checkpoint::open(folder));
  Result<ModelConfig> parsed = parse_config(checkpoint.config_text());
  if (!parsed.ok()) return parsed.error().at(folder + "/config.json");
  const ModelConfig config = std::move(parsed).value();
  if (const Status tensors = check_tensors(checkpoint, expected_tensors(config)); !tensors.ok()) {
    return tensors.error().at(folder);
  }
  const CacheSize size{options.block_count > 0 ? options.block_count : kDefaultBlocks,
                       options.slot_count > 0 ? options.slot_count : kDefaultSlots};
  DI_ASSIGN(CacheStorage cache, CacheStorage::create(CacheLayout::of(config, options.numerics), size));
  std::vector<std::int32_t> token_map;
  if (config.engram) {
    DI_ASSIGN(token_map, load_token_map(folder, config));
  }
  switch (config.family) {
    case Family::kDeepseekV41:
      return open_deepseek_v41(std::move(checkpoint), config, options, std::move(token_map),
                               std::move(cache));
    case Family::kDeepseekV4:
      return open_deepseek_v4(std::move(checkpoint), config, options, std::move(cache));
  }
  return unsupported("unknown family", folder);
}

}  // namespace deepinfer
