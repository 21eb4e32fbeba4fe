#include "tensor/dtype.h"

#include <array>

#include "base/check.h"

namespace deepinfer {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  std::size_t size_bytes;
};

constexpr std::array<Row, kDTypeCount> kTable = {{
    {DType::kF32, "F32", 4},
    {DType::kBF16, "BF16", 2},
    {DType::kF16, "F16", 2},
    {DType::kF64, "F64", 8},
    {DType::kI64, "I64", 8},
    {DType::kI32, "I32", 4},
    {DType::kI16, "I16", 2},
    {DType::kI8, "I8", 1},
    {DType::kU8, "U8", 1},
    {DType::kBool, "BOOL", 1},
    {DType::kF8E4M3, "F8_E4M3", 1},
    {DType::kF8E8M0, "F8_E8M0", 1},
}};

const Row& row_of(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  DI_CHECK(index < kTable.size() && kTable[index].dtype == dtype, "dtype table out of step at ", index);
  return kTable[index];
}

}  // namespace

std::string_view dtype_name(DType dtype) {
  return row_of(dtype).name;
}

std::size_t dtype_size_bytes(DType dtype) {
  return row_of(dtype).size_bytes;
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (const Row& row : kTable) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace deepinfer
