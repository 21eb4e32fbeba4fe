#include "model/convert/random_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/check.h"
#include "model/config.h"
#include "model/convert/random_values.h"
#include "model/engram_hash.h"
#include "model/tensor_list.h"
#include "tensor/float_formats.h"
#include "tensor/quantize.h"

namespace deepinfer {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

std::size_t zu(std::int64_t v) {
  return static_cast<std::size_t>(v);
}

/// A block scale and the kind of codes under it. Most tiles are ordinary; of 256 about 5 are four times as
/// large, 1 is sixteen times as large, 1 vanishes below every sum, 1 has subnormal codes under a large scale,
/// 1 is zero under the largest scale there is.
struct Tile {
  enum class Codes : std::uint8_t { kNormal, kSmallest, kZero };
  std::uint8_t scale;
  Codes codes;
};

/// `base`: biased exponent of an ordinary tile; smallest_shift: how much larger the scale is under the
/// smallest codes.
Tile draw_tile(std::uint64_t bits, int base, int smallest_shift) {
  const auto clamped = [](int byte) { return static_cast<std::uint8_t>(std::clamp(byte, 1, 254)); };
  switch (bits & 255u) {
    case 0:
      return {clamped(base + 4), Tile::Codes::kNormal};
    case 1:
      return {1, Tile::Codes::kNormal};
    case 2:
      return {clamped(base + smallest_shift), Tile::Codes::kSmallest};
    case 3:
      return {254, Tile::Codes::kZero};
    default:
      return {clamped((bits & 255u) < 9 ? base + 2 : base), Tile::Codes::kNormal};
  }
}

/// How a quantised tensor with values of deviation `sigma` is drawn: ordinary codes have the deviation
/// `code_sigma` of the format times what the power of two leaves over.
struct Plan {
  int base;
  double code_deviation;
  Plan(double sigma, double code_sigma) {
    const int exponent = static_cast<int>(std::floor(std::log2(sigma / code_sigma)));
    base = exponent + 127;
    code_deviation = sigma / std::ldexp(1.0, exponent);
  }
};

/// The tiles of one quantised tensor by number, for the codes and again for the scales.
struct Tiles {
  RandomBits bits;
  int base, smallest_shift;
  Tile operator[](std::int64_t i) const {
    return draw_tile(bits.at(static_cast<std::uint64_t>(i)) >> 13, base, smallest_shift);
  }
};

/// Buffers small appends.
class Pieces {
 public:
  explicit Pieces(SafetensorsWriter& writer) : writer_(writer) { bytes_.reserve(kPieceBytes); }
  Status put(std::uint8_t byte) {
    bytes_.push_back(byte);
    return bytes_.size() == kPieceBytes ? flush() : Status();
  }
  Status flush() {
    const Status status = writer_.append_values<std::uint8_t>(bytes_);
    bytes_.clear();
    return status;
  }

 private:
  SafetensorsWriter& writer_;
  std::vector<std::uint8_t> bytes_;
};

Status write_fp8(SafetensorsWriter& writer, const Shape& shape, TileShape tile, const Tiles& tiles,
                 double deviation, RandomBits bits) {
  const std::array<std::uint8_t, 256> normal = e4m3_normal_codes(deviation);
  const std::int64_t across = (shape[1] + tile.cols - 1) / tile.cols;
  Pieces pieces(writer);
  std::uint64_t word = 0;
  for (std::int64_t r = 0; r < shape[0]; ++r) {
    for (std::int64_t t = 0; t < across; ++t) {
      const Tile drawn = tiles[r / tile.rows * across + t];
      for (std::int64_t c = t * tile.cols; c < std::min(shape[1], (t + 1) * tile.cols); ++c) {
        word = c % 8 == 0 ? bits.next() : word >> 8;
        const auto byte = static_cast<std::uint8_t>(word);
        const auto sign = static_cast<std::uint8_t>(byte & 0x80u);
        std::uint8_t code = sign;
        if (drawn.codes == Tile::Codes::kNormal) code = normal[byte];
        if (drawn.codes == Tile::Codes::kSmallest) code = static_cast<std::uint8_t>(sign | (byte & 3u));
        DI_TRY(pieces.put(code));
      }
    }
  }
  return pieces.flush();
}

Status write_fp4(SafetensorsWriter& writer, const Shape& packed, const Tiles& tiles, double deviation,
                 RandomBits bits) {
  const std::array<std::uint8_t, 256> normal = e2m1_normal_codes(deviation);
  Pieces pieces(writer);
  std::uint64_t word = 0;
  Tile drawn{};
  const std::int64_t bytes = packed[0] * packed[1];
  for (std::int64_t i = 0; i < bytes; ++i) {
    if (i % 16 == 0) drawn = tiles[i / 16];
    word = i % 4 == 0 ? bits.next() : word >> 16;
    const auto low = static_cast<std::uint8_t>(word), high = static_cast<std::uint8_t>(word >> 8);
    std::uint8_t even = normal[low], odd = normal[high];
    switch (drawn.codes) {
      case Tile::Codes::kNormal:
        break;
      case Tile::Codes::kSmallest:  // one value of eight is +-0.5
        even = static_cast<std::uint8_t>((low & 7u) == 0 ? (low >> 4 & 8u) | 1u : low >> 4 & 8u);
        odd = static_cast<std::uint8_t>((high & 7u) == 0 ? (high >> 4 & 8u) | 1u : high >> 4 & 8u);
        break;
      case Tile::Codes::kZero:
        even = odd = 0;
        break;
    }
    DI_TRY(pieces.put(pack_e2m1(even, odd)));
  }
  return pieces.flush();
}

/// offset + scale * heavy_normal, in fp32 or bf16.
Status write_plain(SafetensorsWriter& writer, DType dtype, std::int64_t count, double offset, double scale,
                   RandomBits bits) {
  Pieces pieces(writer);
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(offset + scale * heavy_normal(bits.next() >> 11));
    if (dtype == DType::kBF16) {
      const std::uint16_t code = f32_to_bf16(value);
      DI_TRY(pieces.put(static_cast<std::uint8_t>(code)));
      DI_TRY(pieces.put(static_cast<std::uint8_t>(code >> 8)));
    } else {
      DI_CHECK(dtype == DType::kF32, "random values of ", dtype_name(dtype));
      const auto code = std::bit_cast<std::uint32_t>(value);
      for (int shift = 0; shift < 32; shift += 8)
        DI_TRY(pieces.put(static_cast<std::uint8_t>(code >> shift)));
    }
  }
  return pieces.flush();
}

/// Routing table [vocab, per_token]: different experts for each token.
Status write_routes(SafetensorsWriter& writer, const Shape& shape, std::int64_t experts, RandomBits bits) {
  std::vector<std::int64_t> deck(zu(experts));
  std::iota(deck.begin(), deck.end(), 0);
  for (std::int64_t token = 0; token < shape[0]; ++token) {
    for (std::int64_t k = 0; k < shape[1]; ++k) {
      std::swap(deck[zu(k)], deck[zu(k) + bits.below(static_cast<std::uint64_t>(experts - k))]);
    }
    DI_TRY(writer.append_values<std::int64_t>(std::span<const std::int64_t>(deck).first(zu(shape[1]))));
  }
  return {};
}

struct Distribution {
  double offset = 0, scale = 1;
};

/// Chosen so that every sub-layer's input and output stay near one: norms near 1, matrices 1/sqrt(inputs).
Distribution distribution_of(const std::string& name, const Shape& shape) {
  const auto ends = [&](std::string_view suffix) { return name.ends_with(suffix); };
  const double fan_in = 1.0 / std::sqrt(static_cast<double>(shape.back()));
  if (ends("norm.weight") || ends("norm1.weight") || ends("norm2.weight") || ends("q_weight") ||
      ends("k_weight") || ends("hc_head_scale") || ends("hc_attn_scale") || ends("hc_ffn_scale"))
    return {1, 0.1};
  if (ends("embed.weight") && shape.size() == 2 && name == "embed.weight") return {0, 1};
  if (name == "head.weight") return {0, 2 * fan_in};
  if (ends("gate.bias") || ends("gate.bias_vl")) return {0, 0.1};
  if (ends(".ape") || ends("_base")) return {0, 0.5};
  if (ends(".bias")) return {0, 0.02};
  if (shape.size() == 1) return {0, 1};
  return {0, fan_in};
}

std::vector<TensorSource> plan_tensors(const ModelConfig& config, std::uint64_t seed) {
  std::vector<TensorSource> sources;
  const std::vector<ExpectedTensor> wanted = expected_tensors(config);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const ExpectedTensor& want = wanted[i];
    if (want.optional || want.is_scale) continue;
    const RandomBits bits(seed, want.name);
    const DType dtype = want.dtypes.front();
    const Shape shape = want.shape;
    if (want.packed_fp4 || dtype == DType::kF8E4M3) {
      const ExpectedTensor& scale = wanted[i + 1];
      DI_CHECK(scale.is_scale, "no scales behind ", want.name);
      const bool table = want.kind == TensorKind::kEngramTable;
      const double sigma =
          table ? 1.0 : 1.0 / std::sqrt(static_cast<double>(shape[1] * (want.packed_fp4 ? 2 : 1)));
      // Ordinary codes: a tenth of the e4m3 range, so that tails fit; a third of the e2m1 range. Under the
      // smallest codes (2^-9 in e4m3, 0.5 in e2m1) the scale grows so that the values keep their size.
      const Plan plan(sigma, want.packed_fp4 ? 1.5 : 40.0);
      const std::int64_t block = config.quantization.block;
      const TileShape tile = table ? TileShape{1, 32} : TileShape{block, block};
      const Tiles tiles{RandomBits(seed, scale.name), plan.base, want.packed_fp4 ? 2 : 13};
      sources.push_back({want.name, dtype, shape, [=, fp4 = want.packed_fp4](SafetensorsWriter& writer) {
                           return fp4 ? write_fp4(writer, shape, tiles, plan.code_deviation, bits)
                                      : write_fp8(writer, shape, tile, tiles, plan.code_deviation, bits);
                         }});
      const std::int64_t count = element_count(scale.shape).value_or(0);
      sources.push_back(
          {scale.name, scale.dtypes.front(), scale.shape, [=](SafetensorsWriter& writer) -> Status {
             Pieces pieces(writer);
             for (std::int64_t t = 0; t < count; ++t) DI_TRY(pieces.put(tiles[t].scale));
             return pieces.flush();
           }});
    } else if (dtype == DType::kI64) {
      sources.push_back({want.name, dtype, shape, [=, experts = config.experts](SafetensorsWriter& writer) {
                           return write_routes(writer, shape, experts, bits);
                         }});
    } else {
      const Distribution d = distribution_of(want.name, shape);
      const std::int64_t count = element_count(shape).value_or(0);
      sources.push_back({want.name, dtype, shape, [=](SafetensorsWriter& writer) {
                           return write_plain(writer, dtype, count, d.offset, d.scale, bits);
                         }});
    }
  }
  return sources;
}

/// Every compressed id is used; ids beyond them share.
std::vector<std::int32_t> token_map(const ModelConfig& config) {
  std::vector<std::int32_t> map(zu(config.vocab_size));
  for (std::size_t i = 0; i < map.size(); ++i) {
    map[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % config.engram->compressed_vocab);
  }
  return map;
}

}  // namespace

Result<WrittenCheckpoint> random_checkpoint(const std::string& config_text, const std::string& target,
                                            const RandomOptions& options) {
  DI_ASSIGN(const ModelConfig config, parse_config(config_text));
  if (config.engram) {
    const Result<EngramHash> hash = EngramHash::create(*config.engram, token_map(config));
    if (!hash.ok()) return invalid_argument(hash.error().to_string(), "config.json");
  }
  DI_TRY(prepare_checkpoint_folder(target));
  if (config.engram) {
    const std::vector<std::int32_t> map = token_map(config);
    const std::string path = target + "/engram_token_map.i32";
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(map.data()),
               static_cast<std::streamsize>(map.size() * sizeof(map[0])));
    file.close();
    if (!file) return Error{ErrorCode::kIo, "cannot write the file", path};
  }
  return write_checkpoint(target, plan_tensors(config, options.seed), config_text, options.max_shard_bytes);
}

}  // namespace deepinfer
