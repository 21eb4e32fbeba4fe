#include "io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <tuple>

#include "io/json.h"
#include "io/problem_list.h"
#include "tensor/float_formats.h"

namespace deepinfer {

static_assert(std::endian::native == std::endian::little, "safetensors data is used as it lies in the file");

std::string shape_text(const Shape& shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) out += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  return out + "]";
}

std::optional<std::int64_t> element_count(const Shape& shape) {
  std::int64_t product = 1;
  bool zero = false;
  for (const std::int64_t d : shape) {
    if (d < 0) return std::nullopt;
    zero = zero || d == 0;
  }
  if (zero) return 0;
  for (const std::int64_t d : shape) {
    if (__builtin_mul_overflow(product, d, &product)) return std::nullopt;
  }
  return product;
}

Result<std::vector<float>> to_f32(const TensorView& tensor) {
  const auto count = static_cast<std::size_t>(tensor.elements());
  std::vector<float> out(count);
  const auto convert = [&]<class Raw>(Raw, auto decode) {
    for (std::size_t i = 0; i < count; ++i) {
      Raw raw;
      std::memcpy(&raw, tensor.data.data() + i * sizeof(Raw), sizeof(Raw));
      out[i] = decode(raw);
    }
  };
  switch (tensor.dtype) {
    case DType::kF32:
      convert(float{}, [](float x) { return x; });
      break;
    case DType::kF64:
      convert(double{}, [](double x) { return static_cast<float>(x); });
      break;
    case DType::kBF16:
      convert(std::uint16_t{}, bf16_to_f32);
      break;
    case DType::kF16:
      convert(std::uint16_t{}, f16_to_f32);
      break;
    case DType::kF8E4M3:
      convert(std::uint8_t{}, e4m3_to_f32);
      break;
    case DType::kF8E8M0:
      convert(std::uint8_t{}, ue8m0_to_f32);
      break;
    default:
      return invalid_argument(
          fmt::format("a tensor of type {} holds no real numbers", dtype_name(tensor.dtype)));
  }
  return out;
}

namespace {

/// All damage of one file is one kind of problem.
constexpr const char* kKind = "problems of this file";

struct Entry {
  std::string name;
  TensorView view;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

Result<Shape> read_shape(const JsonRef& entry) {
  DI_ASSIGN(const JsonRef field, entry.get("shape"));
  DI_ASSIGN(const std::vector<JsonRef> dims, field.elements());
  constexpr std::size_t kMaxDims = 16;
  if (dims.size() > kMaxDims)
    return field.error(fmt::format("{} dimensions, more than {}", dims.size(), kMaxDims));
  Shape shape;
  for (const JsonRef& dim : dims) {
    DI_ASSIGN(const std::int64_t d, dim.as_int(0));
    shape.push_back(d);
  }
  return shape;
}

/// One header entry against the data area of `data_bytes`. The error lacks the tensor's name; the caller adds
/// it.
Result<Entry> read_entry(const JsonRef& ref, std::uint64_t data_bytes) {
  Entry entry;
  DI_ASSIGN(const JsonRef dtype_field, ref.get("dtype"));
  DI_ASSIGN(const std::string spelling, dtype_field.as_string());
  const auto dtype = parse_dtype(spelling);
  if (!dtype) return unsupported(fmt::format("unknown element type {}", json_quote(spelling.substr(0, 40))));
  entry.view.dtype = *dtype;
  DI_ASSIGN(entry.view.shape, read_shape(ref));
  DI_ASSIGN(const JsonRef offsets_field, ref.get("data_offsets"));
  DI_ASSIGN(const std::vector<JsonRef> offsets, offsets_field.elements());
  if (offsets.size() != 2)
    return offsets_field.error(fmt::format("expected [begin, end], found {} values", offsets.size()));
  DI_ASSIGN(const std::int64_t begin, offsets[0].as_int(0));
  DI_ASSIGN(const std::int64_t end, offsets[1].as_int(0));
  entry.begin = static_cast<std::uint64_t>(begin);
  entry.end = static_cast<std::uint64_t>(end);
  if (begin > end) return corrupt(fmt::format("data_offsets [{}, {}] run backwards", begin, end));
  if (entry.end > data_bytes)
    return corrupt(
        fmt::format("data_offsets [{}, {}] pass the end of the data, which has {} bytes (file cut short?)",
                    begin, end, data_bytes));
  const auto elements = element_count(entry.view.shape);
  std::int64_t need = 0;
  if (!elements ||
      __builtin_mul_overflow(*elements, static_cast<std::int64_t>(dtype_size_bytes(*dtype)), &need))
    return corrupt(fmt::format("shape {} is larger than any file", shape_text(entry.view.shape)));
  if (need != end - begin)
    return corrupt(fmt::format("{} {} needs {} bytes, but data_offsets [{}, {}] hold {}", spelling,
                               shape_text(entry.view.shape), need, begin, end, end - begin));
  for (const JsonMember& member : ref.value().as_object()) {
    if (member.first != "dtype" && member.first != "shape" && member.first != "data_offsets")
      return corrupt(fmt::format("unknown header field {}", json_quote(member.first)));
  }
  return entry;
}

/// Overlaps and unused bytes, given the entries in the order of their data.
void check_layout(const std::vector<Entry>& entries, std::uint64_t data_bytes, bool allow_gaps,
                  ProblemList& problems) {
  std::uint64_t reached = 0;
  const Entry* holder = nullptr;
  for (const Entry& entry : entries) {
    if (entry.begin == entry.end) continue;
    if (entry.begin < reached) {
      problems.add(kKind,
                   fmt::format("tensor {}: its bytes [{}, {}] overlap those of {} [{}, {}]", entry.name,
                               entry.begin, entry.end, holder->name, holder->begin, holder->end));
    } else if (entry.begin > reached && !allow_gaps) {
      problems.add(kKind, fmt::format("bytes [{}, {}] before tensor {} belong to no tensor", reached,
                                      entry.begin, entry.name));
    }
    if (entry.end > reached) {
      reached = entry.end;
      holder = &entry;
    }
  }
  if (reached < data_bytes && !allow_gaps)
    problems.add(kKind, fmt::format("the last {} bytes belong to no tensor", data_bytes - reached));
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path, const SafetensorsOptions& options) {
  SafetensorsFile out;
  DI_ASSIGN(out.file_, MmapFile::open(path));
  const std::span<const std::byte> bytes = out.file_.bytes();
  if (bytes.size() < 8)
    return corrupt(fmt::format("{} bytes are too few for a safetensors file", bytes.size()), path);
  std::uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), 8);
  if (header_size > bytes.size() - 8)
    return corrupt(
        fmt::format("the header claims {} bytes, but only {} follow (file cut short, or not safetensors)",
                    header_size, bytes.size() - 8),
        path);
  if (header_size > options.max_header_bytes)
    return corrupt(fmt::format("the header claims {} bytes, more than the {} allowed", header_size,
                               options.max_header_bytes),
                   path);
  const std::string_view text = out.file_.text().substr(8, header_size);
  if (text.empty() || text.front() != '{')
    return corrupt("the header does not start with '{': not a safetensors file", path);
  Result<Json> header = parse_json(text, {.max_bytes = options.max_header_bytes, .max_depth = 8});
  if (!header.ok()) return corrupt("the header is not valid JSON: " + header.error().to_string(), path);
  if (!header->is_object()) return corrupt("the header is not a JSON object", path);

  out.data_begin_ = 8 + static_cast<std::size_t>(header_size);
  const std::uint64_t data_bytes = bytes.size() - out.data_begin_;
  ProblemList problems(20);
  ErrorCode code = ErrorCode::kCorrupt;
  std::vector<Entry> entries;
  for (const JsonMember& member : header->as_object()) {
    if (member.first == "__metadata__") {
      if (!member.second.is_object()) {
        problems.add(kKind, "__metadata__ is not an object");
        continue;
      }
      for (const JsonMember& item : member.second.as_object()) {
        if (item.second.is_string())
          out.metadata_.emplace_back(item.first, item.second.as_string());
        else
          problems.add(kKind, fmt::format("__metadata__ field {} is not a string", json_quote(item.first)));
      }
      continue;
    }
    Result<Entry> entry =
        member.second.is_object()
            ? read_entry(JsonRef(member.second), data_bytes)
            : Result<Entry>(corrupt(fmt::format("expected an object, found {}", member.second.kind_name())));
    if (!entry.ok()) {
      if (entry.error().code == ErrorCode::kUnsupported && problems.empty()) code = ErrorCode::kUnsupported;
      problems.add(kKind, "tensor " + entry.error().at(member.first).to_string());
      continue;
    }
    entry->name = member.first;
    entries.push_back(std::move(*entry));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  // Layout is judged only when every entry could be read: a bad entry leaves a hole that is no second fault.
  if (problems.empty()) check_layout(entries, data_bytes, options.allow_gaps, problems);
  if (!problems.empty()) return problems.error(code, "", path);

  out.tensors_.reserve(entries.size());
  out.by_name_.reserve(entries.size());
  for (Entry& entry : entries) {
    entry.view.data = bytes.subspan(out.data_begin_ + entry.begin, entry.end - entry.begin);
    out.by_name_.emplace(entry.name, out.tensors_.size());
    out.tensors_.emplace_back(std::move(entry.name), std::move(entry.view));
  }
  return out;
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &tensors_[found->second].second;
}

}  // namespace deepinfer
