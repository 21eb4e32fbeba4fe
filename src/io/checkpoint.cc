#include "io/checkpoint.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "io/json.h"
#include "io/problem_list.h"

namespace deepinfer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;
constexpr std::size_t kMaxIndexBytes = std::size_t{256} << 20;
constexpr const char* kIndexName = "model.safetensors.index.json";

/// A file name from an index must stay inside the folder.
bool plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

/// Tensor name -> shard file name.
using WeightMap = std::map<std::string, std::string>;

Result<WeightMap> read_index(const std::string& text, const std::string& path) {
  Result<Json> index = parse_json(text, {.max_bytes = kMaxIndexBytes, .max_depth = 16});
  if (!index.ok()) return corrupt("not valid JSON: " + index.error().to_string(), path);
  const auto read = [&]() -> Result<WeightMap> {
    WeightMap map;
    DI_ASSIGN(const JsonRef field, JsonRef(*index).get("weight_map"));
    DI_ASSIGN(const auto members, field.members());
    for (const auto& [name, value] : members) {
      DI_ASSIGN(std::string file, value.as_string());
      if (!plain_file_name(file)) return value.error(fmt::format("{} is not a file name", json_quote(file)));
      map.emplace(std::string(name), std::move(file));
    }
    if (map.empty()) return field.error("names no tensor");
    return map;
  };
  Result<WeightMap> map = read();
  if (!map.ok()) return corrupt(map.error().to_string(), path);
  return map;
}

/// The one weight file of a folder without an index.
Result<std::string> single_file(const std::string& folder) {
  std::error_code ec;
  if (fs::exists(fs::path(folder) / "model.safetensors", ec)) return std::string("model.safetensors");
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ec)) {
    if (entry.path().extension() == ".safetensors") found.push_back(entry.path().filename().string());
  }
  if (ec) return not_found("cannot read the folder: " + ec.message(), folder);
  if (found.size() == 1) return found.front();
  if (found.empty())
    return not_found(fmt::format("no weights: neither {} nor a .safetensors file", kIndexName), folder);
  return not_found(fmt::format("{} .safetensors files but no {} to say how they belong together",
                               found.size(), kIndexName),
                   folder);
}

class Hash {
 public:
  Hash() : state_(XXH3_createState()) {
    DI_CHECK(state_ != nullptr && XXH3_128bits_reset(state_) == XXH_OK, "cannot start a hash");
  }
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;
  ~Hash() { XXH3_freeState(state_); }
  void add(std::span<const std::byte> bytes) { XXH3_128bits_update(state_, bytes.data(), bytes.size()); }
  /// Length first, so that neighbouring fields cannot trade bytes.
  void add_field(std::string_view text) {
    const std::uint64_t size = text.size();
    add(std::as_bytes(std::span(&size, 1)));
    add(std::as_bytes(std::span(text)));
  }
  std::string hex() const {
    const XXH128_hash_t digest = XXH3_128bits_digest(state_);
    return fmt::format("{:016x}{:016x}", digest.high64, digest.low64);
  }

 private:
  XXH3_state_t* state_;
};

void add_samples(Hash& hash, std::span<const std::byte> data) {
  constexpr std::size_t kSample = 64 << 10;
  constexpr std::size_t kIntervals = 16;
  if (data.size() <= kSample * (kIntervals + 1)) {
    hash.add(data);
    return;
  }
  const std::size_t last = data.size() - kSample;
  for (std::size_t i = 0; i <= kIntervals; ++i)
    hash.add(data.subspan(last / kIntervals * i + last % kIntervals * i / kIntervals, kSample));
}

std::string file_name(const SafetensorsFile& shard) {
  return fs::path(shard.path()).filename().string();
}

}  // namespace

Result<std::string> read_config_text(const std::string& folder) {
  std::error_code ec;
  if (!fs::is_directory(folder, ec)) return not_found("no such model folder", folder);
  return read_text_file((fs::path(folder) / "config.json").string(), kMaxConfigBytes);
}

Result<Checkpoint> Checkpoint::open(const std::string& folder, const SafetensorsOptions& options) {
  Checkpoint out;
  out.folder_ = folder;
  DI_ASSIGN(out.config_text_, read_config_text(folder));

  std::error_code ec;
  const std::string index_path = (fs::path(folder) / kIndexName).string();
  WeightMap map;
  std::vector<std::string> files;
  if (fs::exists(index_path, ec)) {
    DI_ASSIGN(out.index_text_, read_text_file(index_path, kMaxIndexBytes));
    DI_ASSIGN(map, read_index(out.index_text_, index_path));
    for (const auto& [name, file] : map) files.push_back(file);
    std::sort(files.begin(), files.end());
    files.erase(std::unique(files.begin(), files.end()), files.end());
  } else {
    DI_ASSIGN(std::string file, single_file(folder));
    files.push_back(std::move(file));
  }

  ProblemList problems(10);
  std::map<std::string, bool> readable;
  for (const std::string& file : files) {
    Result<SafetensorsFile> shard = SafetensorsFile::open((fs::path(folder) / file).string(), options);
    readable[file] = shard.ok();
    if (!shard.ok()) {
      const bool missing = shard.error().code == ErrorCode::kNotFound;
      const auto count =
          std::count_if(map.begin(), map.end(), [&file](const auto& item) { return item.second == file; });
      if (missing)
        problems.add("missing shards",
                     fmt::format("shard {} is missing ({} tensors are in it)", file, count));
      else
        problems.add("damaged shards", "shard " + shard.error().to_string());
      continue;
    }
    const int shard_index = static_cast<int>(out.shards_.size());
    for (std::size_t i = 0; i < shard->tensors().size(); ++i) {
      const std::string& name = shard->tensors()[i].first;
      const auto [twin, fresh] = out.by_name_.emplace(name, Place{shard_index, i});
      if (!fresh)
        problems.add("repeated tensors",
                     fmt::format("tensor {} is in {} and in {}", name,
                                 file_name(out.shards_[static_cast<std::size_t>(twin->second.shard)]), file));
      if (map.empty()) continue;
      const auto listed = map.find(name);
      if (listed == map.end())
        problems.add("unlisted tensors", fmt::format("tensor {} is in {} but not in the index", name, file));
      else if (listed->second != file && fresh)
        problems.add("misplaced tensors",
                     fmt::format("tensor {} is in {}, but the index says {}", name, file, listed->second));
    }
    out.shards_.push_back(std::move(*shard));
  }
  for (const auto& [name, file] : map) {
    if (readable[file] && !out.by_name_.contains(name))
      problems.add("lost tensors", fmt::format("tensor {} is listed for {} but not in it", name, file));
  }
  if (!problems.empty()) return problems.error(ErrorCode::kCorrupt, "the checkpoint cannot be used:", folder);
  return out;
}

std::vector<std::string_view> Checkpoint::names() const {
  std::vector<std::string_view> out;
  out.reserve(by_name_.size());
  for (const auto& [name, place] : by_name_) out.emplace_back(name);
  std::sort(out.begin(), out.end());
  return out;
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  if (found == by_name_.end()) return nullptr;
  return &shards_[static_cast<std::size_t>(found->second.shard)].tensors()[found->second.tensor].second;
}

int Checkpoint::shard_of(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? -1 : found->second.shard;
}

std::uint64_t Checkpoint::tensor_bytes() const {
  std::uint64_t sum = 0;
  for (const SafetensorsFile& shard : shards_) {
    for (const auto& [name, tensor] : shard.tensors()) sum += tensor.data.size();
  }
  return sum;
}

std::string Checkpoint::fingerprint() const {
  Hash hash;
  hash.add_field("deepinfer checkpoint fingerprint 1");
  hash.add_field(config_text_);
  hash.add_field(index_text_);
  for (const SafetensorsFile& shard : shards_) {
    const std::uint64_t size = shard.file_bytes();
    hash.add_field(file_name(shard));
    hash.add(std::as_bytes(std::span(&size, 1)));
    hash.add(shard.header_bytes());
    add_samples(hash, shard.file().bytes().subspan(shard.header_bytes().size()));
  }
  return hash.hex();
}

std::string Checkpoint::full_hash() const {
  Hash hash;
  hash.add_field("deepinfer checkpoint full hash 1");
  hash.add_field(config_text_);
  hash.add_field(index_text_);
  constexpr std::size_t kPiece = std::size_t{64} << 20;
  for (const SafetensorsFile& shard : shards_) {
    const std::uint64_t size = shard.file_bytes();
    hash.add_field(file_name(shard));
    hash.add(std::as_bytes(std::span(&size, 1)));
    for (std::size_t at = 0; at < size; at += kPiece) {
      const std::size_t count = std::min(kPiece, static_cast<std::size_t>(size) - at);
      shard.file().advise(at, count, MmapAdvice::kWillNeed);
      hash.add(shard.file().bytes().subspan(at, count));
    }
  }
  return hash.hex();
}

}  // namespace deepinfer
