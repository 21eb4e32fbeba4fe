#include "model/convert/quantize_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "base/check.h"
#include "io/checkpoint.h"
#include "io/json.h"
#include "model/config.h"
#include "model/tensor_list.h"
#include "tensor/quantize.h"

namespace deepinfer {
namespace {

constexpr std::int64_t kStripeValues = std::int64_t{1} << 22;
constexpr std::uintmax_t kMaxSideFileBytes = std::uintmax_t{256} << 20;

std::size_t zu(std::int64_t v) {
  return static_cast<std::size_t>(v);
}

/// Rows [begin, end) of a matrix as fp32, checked.
Result<std::vector<float>> read_rows(const TensorView& matrix, std::int64_t begin, std::int64_t end,
                                     const std::string& name) {
  const std::int64_t row_bytes = matrix.shape[1] * static_cast<std::int64_t>(dtype_size_bytes(matrix.dtype));
  const TensorView part{matrix.dtype,
                        {end - begin, matrix.shape[1]},
                        matrix.data.subspan(zu(begin * row_bytes), zu((end - begin) * row_bytes))};
  DI_ASSIGN(std::vector<float> values, to_f32(part));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      return corrupt(fmt::format("row {} holds a value that is not finite",
                                 begin + static_cast<std::int64_t>(i) / matrix.shape[1]),
                     name);
    }
  }
  return values;
}

/// Quantises `from` stripe by stripe; the scales stay in memory until their tensor's turn.
Status write_codes(const TensorView& from, const std::string& name, bool fp4, TileShape tile,
                   std::vector<std::uint8_t>& scales, SafetensorsWriter& writer) {
  const std::int64_t rows = from.shape[0], cols = from.shape[1];
  const std::int64_t stripe =
      std::max<std::int64_t>(1, kStripeValues / std::max<std::int64_t>(1, cols) / tile.rows) * tile.rows;
  for (std::int64_t begin = 0; begin < rows; begin += stripe) {
    const std::int64_t end = std::min(rows, begin + stripe), count = end - begin;
    DI_ASSIGN(const std::vector<float> values, read_rows(from, begin, end, name));
    std::vector<std::uint8_t> codes(values.size() / (fp4 ? 2 : 1));
    std::vector<std::uint8_t> stripe_scales(
        zu(fp4 ? count * (cols / 32)
               : (count + tile.rows - 1) / tile.rows * ((cols + tile.cols - 1) / tile.cols)));
    if (fp4)
      fp4_quantize_weight(values, count, cols, codes, stripe_scales);
    else
      fp8_quantize_weight(values, count, cols, tile, codes, stripe_scales);
    DI_TRY(writer.append_values<std::uint8_t>(codes));
    scales.insert(scales.end(), stripe_scales.begin(), stripe_scales.end());
  }
  return {};
}

/// config.json with the quantisation the copy has, in the place where the family's checkpoints state it.
Result<std::string> quantized_config(const std::string& text, const ModelConfig& config,
                                     const QuantizeOptions& options) {
  DI_ASSIGN(Json document, parse_json(text));
  if (document.find("model_type") == nullptr) {
    return unsupported(
        "config.json uses the names of the reference program; convert needs the published config.json",
        "config.json");
  }
  const bool v41 = config.family == Family::kDeepseekV41;
  const std::int64_t block = options.block > 0 ? options.block : v41 ? 32 : 128;
  Json quantization = Json::object();
  quantization.set("quant_method", "fp8").set("activation_scheme", "dynamic");
  Json size = Json::array();
  size.push(block).push(block);
  quantization.set("weight_block_size", std::move(size)).set("scale_fmt", "ue8m0");
  if (!v41) quantization.set("fmt", "e4m3");
  (v41 ? quantization : document).set("expert_dtype", options.fp4_experts ? "fp4" : "fp8");
  document.set("quantization_config", std::move(quantization));
  return to_json_text(document, 2) + "\n";
}

/// Tokenizer, token map, wording, notices: every small file beside the weights.
Status copy_side_files(const std::string& source, const std::string& target) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(source, error)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name.ends_with(".safetensors") || name == "config.json" ||
        name == "model.safetensors.index.json" || entry.file_size() > kMaxSideFileBytes) {
      continue;
    }
    std::filesystem::copy_file(entry.path(), std::filesystem::path(target) / name, error);
    if (error)
      return Error{ErrorCode::kIo, "cannot copy the file: " + error.message(), entry.path().string()};
  }
  if (error) return Error{ErrorCode::kIo, "cannot list the folder: " + error.message(), source};
  return {};
}

/// The copy's tensors. Views point into `checkpoint`, which must outlive them.
std::vector<TensorSource> plan_tensors(const Checkpoint& checkpoint,
                                       const std::vector<ExpectedTensor>& wanted, std::int64_t block) {
  std::vector<TensorSource> sources;
  std::shared_ptr<std::vector<std::uint8_t>> scales;  // of the weight before
  for (const ExpectedTensor& want : wanted) {
    if (want.is_scale) {
      DI_CHECK(scales != nullptr, "scales without a weight: ", want.name);
      sources.push_back({want.name, want.dtypes.front(), want.shape, [scales](SafetensorsWriter& writer) {
                           const Status status = writer.append_values<std::uint8_t>(*scales);
                           *scales = {};
                           return status;
                         }});
      scales.reset();
      continue;
    }
    const TensorView* from = checkpoint.find(want.name);
    if (from == nullptr) continue;  // optional; the rest was checked
    const DType to = want.dtypes.front();
    if (!want.packed_fp4 && to != DType::kF8E4M3) {
      sources.push_back({want.name, from->dtype, from->shape,
                         [from](SafetensorsWriter& writer) { return writer.append(from->data); }});
      continue;
    }
    const TileShape tile =
        want.packed_fp4 || want.kind == TensorKind::kEngramTable ? TileShape{1, 32} : TileShape{block, block};
    scales = std::make_shared<std::vector<std::uint8_t>>();
    sources.push_back(
        {want.name, to, want.shape,
         [from, tile, scales, name = want.name, fp4 = want.packed_fp4](SafetensorsWriter& writer) {
           return write_codes(*from, name, fp4, tile, *scales, writer);
         }});
  }
  return sources;
}

}  // namespace

Result<WrittenCheckpoint> quantize_checkpoint(const std::string& source, const std::string& target,
                                              const QuantizeOptions& options) {
  DI_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(source));
  Result<ModelConfig> parsed = parse_config(checkpoint.config_text());
  if (!parsed.ok()) return parsed.error().at(source + "/config.json");
  const ModelConfig& plain = *parsed;
  if (plain.quantization.block != 0) return invalid_argument("the checkpoint is quantised already", source);
  DI_TRY(check_tensors(checkpoint, expected_tensors(plain)));
  DI_ASSIGN(const std::string config_text, quantized_config(checkpoint.config_text(), plain, options));
  Result<ModelConfig> quantized = parse_config(config_text);
  if (!quantized.ok())
    return unsupported("the quantised formats do not fit: " + quantized.error().to_string(), source);
  DI_TRY(prepare_checkpoint_folder(target));
  DI_TRY(copy_side_files(source, target));
  return write_checkpoint(
      target, plan_tensors(checkpoint, expected_tensors(*quantized), quantized->quantization.block),
      config_text, options.max_shard_bytes);
}

}  // namespace deepinfer
