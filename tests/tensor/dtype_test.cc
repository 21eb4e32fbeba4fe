#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <set>

namespace deepinfer {
namespace {

TEST(DType, NamesRoundTripAndAreDistinct) {
  std::set<std::string_view> names;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    names.insert(dtype_name(dtype));
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kDTypeCount));
}

TEST(DType, UnknownSpellingsAreRefused) {
  for (const char* name : {"", "f32", "F8_E5M2", "F32 ", "FLOAT"}) EXPECT_FALSE(parse_dtype(name)) << name;
}

TEST(DType, SizesMatchTheFileFormat) {
  EXPECT_EQ(dtype_size_bytes(DType::kF64), 8u);
  EXPECT_EQ(dtype_size_bytes(DType::kI64), 8u);
  EXPECT_EQ(dtype_size_bytes(DType::kF32), 4u);
  EXPECT_EQ(dtype_size_bytes(DType::kI32), 4u);
  EXPECT_EQ(dtype_size_bytes(DType::kBF16), 2u);
  EXPECT_EQ(dtype_size_bytes(DType::kF16), 2u);
  EXPECT_EQ(dtype_size_bytes(DType::kI16), 2u);
  for (DType one : {DType::kI8, DType::kU8, DType::kBool, DType::kF8E4M3, DType::kF8E8M0})
    EXPECT_EQ(dtype_size_bytes(one), 1u);
}

}  // namespace
}  // namespace deepinfer
