#include "model/convert.h"

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "io/checkpoint.h"
#include "io/json.h"
#include "model/tensor_list.h"
#include "tensor/quantize.h"

namespace deepinfer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "model.safetensors.index.json";

/// The source's config.json with the target's quantisation stated the way its family does.
Result<std::string> target_config_text(const std::string& text, Family family, const WeightQuantization& q) {
  DI_ASSIGN(Json config, parse_json(text));
  const char* experts = q.fp4_experts ? "fp4" : "fp8";
  Json stated;
  stated.set("quant_method", "fp8").set("activation_scheme", "dynamic").set("scale_fmt", "ue8m0");
  stated.set("weight_block_size", JsonArray{q.block, q.block});
  if (family == Family::kDeepseekV41)
    stated.set("expert_dtype", experts);
  else
    config.set("expert_dtype", experts);
  config.set("quantization_config", std::move(stated));
  return to_json_text(config, 2) + "\n";
}

Status write_text(const fs::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) return io_error("cannot write the file", EIO, path.string());
  return {};
}

/// A tensor of the target and what it comes from.
struct Item {
  const ExpectedTensor* want = nullptr;
  const TensorView* source = nullptr;  // null for scales: they come with the weight before them
  DType dtype = DType::kU8;            // plain tensors keep the source's type
  std::int64_t bytes = 0;
};

/// Weight codes and, behind them, the scales.
Status quantize(const Item& item, const Shape& scale_shape, std::int64_t block,
                std::vector<std::uint8_t>& codes, std::vector<std::uint8_t>& scales) {
  DI_ASSIGN(const std::vector<float> values, to_f32(*item.source));
  const Shape& shape = item.source->shape;
  codes.resize(static_cast<std::size_t>(item.bytes));
  scales.resize(static_cast<std::size_t>(element_count(scale_shape).value_or(0)));
  if (item.want->packed_fp4) {
    fp4_quantize_weight(values, shape[0], shape[1], codes, scales);
  } else {
    const bool rows = item.want->kind == TensorKind::kEngramTable;
    fp8_quantize_weight(values, shape[0], shape[1], rows ? TileShape{1, 32} : TileShape{block, block}, codes,
                        scales);
  }
  return {};
}

/// The items of one shard, written in order.
Status write_shard(const std::string& path, std::span<const Item> items, std::int64_t block,
                   const std::function<void()>& written) {
  SafetensorsWriter writer(path);
  writer.set_metadata("format", "pt");
  for (const Item& item : items) DI_TRY(writer.declare(item.want->name, item.dtype, item.want->shape));
  std::vector<std::uint8_t> codes, scales;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    if (i + 1 < items.size() && items[i + 1].want->is_scale) {
      DI_TRY(quantize(item, items[i + 1].want->shape, block, codes, scales));
      DI_TRY(writer.append_values<std::uint8_t>(codes));
      DI_TRY(writer.append_values<std::uint8_t>(scales));
      ++i;
      written();
    } else {
      DI_TRY(writer.append(item.source->data));
    }
    written();
  }
  return writer.finish();
}

Status copy_small_files(const fs::path& from, const fs::path& to) {
  std::error_code ec;
  for (const fs::directory_entry& entry : fs::directory_iterator(from, ec)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name == "config.json" || name == kIndexName ||
        entry.path().extension() == ".safetensors")
      continue;
    fs::copy_file(entry.path(), to / name, ec);
    if (ec) return io_error("cannot copy the file", ec.value(), entry.path().string());
  }
  return {};
}

/// The target's tensors in order, with their sources. A weight and its scale stay neighbours.
Result<std::vector<Item>> match(const Checkpoint& source, const std::vector<ExpectedTensor>& target) {
  std::vector<Item> items;
  for (const ExpectedTensor& want : target) {
    Item item{&want, want.is_scale ? nullptr : source.find(want.name), want.dtypes.front(), want.bytes()};
    if (!want.is_scale) {
      if (item.source == nullptr) continue;  // optional: the source was checked
      const bool plain =
          item.source->shape == want.shape && want.dtypes.front() != DType::kF8E4M3 && !want.packed_fp4;
      if (plain) {
        item.dtype = item.source->dtype;
        item.bytes = static_cast<std::int64_t>(item.source->data.size());
      }
    }
    items.push_back(item);
  }
  return items;
}

}  // namespace

Status convert_checkpoint(const std::string& from, const std::string& to, const ConvertOptions& options) {
  DI_ASSIGN(const Checkpoint source, Checkpoint::open(from));
  const Result<ModelConfig> config = parse_config(source.config_text());
  if (!config.ok()) return config.error().at(from);
  if (config->quantization.block != 0) return invalid_argument("the checkpoint is quantised already", from);
  DI_TRY(check_tensors(source, expected_tensors(*config)));
  DI_ASSIGN(const std::string config_text,
            target_config_text(source.config_text(), config->family, options.quantization));
  const Result<ModelConfig> target_config = parse_config(config_text);
  if (!target_config.ok()) return target_config.error().at("the quantised copy");

  std::error_code ec;
  if (fs::exists(to, ec) && !fs::is_empty(to, ec))
    return invalid_argument("exists already and is not an empty folder", to);
  fs::create_directories(to, ec);
  if (ec) return io_error("cannot create the folder", ec.value(), to);

  const std::vector<ExpectedTensor> target = expected_tensors(*target_config);
  DI_ASSIGN(const std::vector<Item> items, match(source, target));
  // Shards: [begin, end) of items; never between a weight and its scale.
  std::vector<std::size_t> begins = {0};
  std::int64_t filled = 0;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (filled > 0 && filled + items[i].bytes > options.shard_bytes && !items[i].want->is_scale) {
      begins.push_back(i);
      filled = 0;
    }
    filled += items[i].bytes;
    total += items[i].bytes;
  }
  begins.push_back(items.size());

  Json index;
  JsonObject weight_map;
  std::int64_t done = 0;
  const std::size_t shard_count = begins.size() - 1;
  for (std::size_t s = 0; s < shard_count; ++s) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shard_count);
    const std::span<const Item> part = std::span(items).subspan(begins[s], begins[s + 1] - begins[s]);
    for (const Item& item : part) weight_map.emplace_back(item.want->name, name);
    DI_TRY(write_shard((fs::path(to) / name).string(), part, options.quantization.block, [&] {
      ++done;
      if (options.progress) options.progress(done, static_cast<std::int64_t>(items.size()));
    }));
  }
  Json metadata;
  metadata.set("total_size", total);
  index.set("metadata", std::move(metadata)).set("weight_map", std::move(weight_map));
  DI_TRY(copy_small_files(from, to));
  DI_TRY(write_text(fs::path(to) / kIndexName, to_json_text(index, 1) + "\n"));
  return write_text(fs::path(to) / "config.json", config_text);
}

}  // namespace deepinfer
