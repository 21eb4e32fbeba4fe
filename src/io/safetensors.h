// The safetensors container: an 8-byte little-endian header length, a JSON header, then one data area.
//
// Opening reads and checks the whole header against the file's size; nothing of the data area is touched.
// After a successful open() every tensor's bytes lie inside the mapping, its shape and element type account
// for exactly those bytes, and no two tensors share a byte. Sizes are 64 bits throughout: tensors above 2^31
// elements and files above 2^32 bytes are ordinary. SafetensorsFile owns the mapping; views stay valid while
// it lives (moves keep them valid). const members may be called from any thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "io/mmap_file.h"
#include "tensor/dtype.h"

namespace deepinfer {

using Shape = std::vector<std::int64_t>;

/// "[1280, 5120]"; "[]" for a scalar.
std::string shape_text(const Shape& shape);

/// The product of the dimensions, or nothing when one is negative or the product passes int64.
std::optional<std::int64_t> element_count(const Shape& shape);

/// A tensor in a mapped file. Does not own its bytes, which need not be aligned to the element size.
struct TensorView {
  DType dtype = DType::kU8;
  Shape shape;
  std::span<const std::byte> data;

  std::int64_t elements() const { return static_cast<std::int64_t>(data.size() / dtype_size_bytes(dtype)); }
  /// Copies elements [first, first + out.size()) whatever the alignment. sizeof(T) must be the element's
  /// size.
  template <class T>
  void copy_to(std::int64_t first, std::span<T> out) const {
    DI_CHECK(sizeof(T) == dtype_size_bytes(dtype), "element size of ", dtype_name(dtype));
    DI_CHECK(first >= 0 && first <= elements() && static_cast<std::int64_t>(out.size()) <= elements() - first,
             "elements outside the tensor");
    if (!out.empty())
      std::memcpy(out.data(), data.data() + static_cast<std::size_t>(first) * sizeof(T), out.size_bytes());
  }
  /// The bytes of a one-byte type, such as FP8 codes and scales.
  std::span<const std::uint8_t> u8() const {
    DI_CHECK(dtype_size_bytes(dtype) == 1, "u8() of a tensor of ", dtype_name(dtype));
    return {reinterpret_cast<const std::uint8_t*>(data.data()), data.size()};
  }
};

/// All elements as fp32: F32, BF16, F16 and F64 by value, F8_E4M3 and F8_E8M0 by decoding each code (no scale
/// applied). Errors: kInvalidArgument for integer types.
Result<std::vector<float>> to_f32(const TensorView& tensor);

struct SafetensorsOptions {
  /// Header bytes accepted; the official library's bound.
  std::uint64_t max_header_bytes = 100'000'000;
  /// Accept unused bytes between tensors or after the last one. The format forbids them.
  bool allow_gaps = false;
};

class SafetensorsFile {
 public:
  /// Errors: kCorrupt names the file and the tensor for every contradiction, kUnsupported an element type
  /// this engine does not know. All damage of one file is listed in one error, at most 20 lines of it.
  static Result<SafetensorsFile> open(const std::string& path, const SafetensorsOptions& options = {});

  const std::string& path() const { return file_.path(); }
  std::size_t file_bytes() const { return file_.size_bytes(); }
  /// Length field, JSON text and padding: everything before the data area.
  std::span<const std::byte> header_bytes() const { return file_.bytes().first(data_begin_); }
  const MmapFile& file() const { return file_; }

  /// Names with their tensors, in the order of their data.
  const std::vector<std::pair<std::string, TensorView>>& tensors() const { return tensors_; }
  /// nullptr when there is no such tensor.
  const TensorView* find(std::string_view name) const;
  /// The header's "__metadata__" strings, in file order.
  const std::vector<std::pair<std::string, std::string>>& metadata() const { return metadata_; }

 private:
  MmapFile file_;
  std::size_t data_begin_ = 0;
  std::vector<std::pair<std::string, TensorView>> tensors_;
  std::unordered_map<std::string, std::size_t> by_name_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

/// Writes one safetensors file front to back: announce all tensors first, then give their bytes in the same
/// order. The file appears under its name only when finish() succeeds (a temporary file beside it is
/// renamed); an abandoned writer leaves nothing. One thread.
class SafetensorsWriter {
 public:
  explicit SafetensorsWriter(std::string path);
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  ~SafetensorsWriter();

  void set_metadata(std::string key, std::string value);
  /// Announces a tensor. Errors: kInvalidArgument for a repeated or reserved name or a bad shape.
  Status declare(const std::string& name, DType dtype, const Shape& shape);
  /// Appends bytes to the data of the announced tensors; may be called in pieces of any size. The first call
  /// writes the header. Errors: kIo, kInvalidArgument when more bytes come than were announced.
  Status append(std::span<const std::byte> bytes);
  template <class T>
  Status append_values(std::span<const T> values) {
    return append(std::as_bytes(values));
  }
  /// Checks that every announced byte came, syncs and renames.
  Status finish();

 private:
  Status write_header();
  Status write_all(const void* data, std::size_t size_bytes);
  struct Entry {
    std::string name;
    DType dtype;
    Shape shape;
    std::uint64_t size_bytes;
  };
  std::string path_;
  std::string temporary_path_;
  int fd_ = -1;
  std::vector<std::pair<std::string, std::string>> metadata_;
  std::vector<Entry> entries_;
  std::uint64_t announced_bytes_ = 0;
  std::uint64_t written_bytes_ = 0;
};

}  // namespace deepinfer
