#include "base/result.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0) return invalid_argument("odd", "x");
  return x / 2;
}

Result<int> quarter(int x) {
  DI_ASSIGN(int h, half(x));
  DI_ASSIGN(int q, half(h));
  return q;
}

Status check_quarter(int x) {
  DI_TRY(quarter(x));
  return {};
}

TEST(Result, CarriesValueOrError) {
  EXPECT_EQ(quarter(12).value(), 3);
  ASSERT_FALSE(quarter(6).ok());
  EXPECT_EQ(quarter(6).error().to_string(), "x: odd");
  EXPECT_EQ(quarter(6).error().code, ErrorCode::kInvalidArgument);
}

TEST(Result, StatusPropagates) {
  EXPECT_TRUE(check_quarter(4).ok());
  EXPECT_EQ(check_quarter(5).error().at("line 7").to_string(), "line 7: x: odd");
}

TEST(Result, IoErrorNamesTheReason) {
  const Error e = io_error("cannot open", 2, "a.txt");
  EXPECT_EQ(e.code, ErrorCode::kIo);
  EXPECT_EQ(e.to_string(), "a.txt: cannot open: No such file or directory");
}

TEST(ResultDeathTest, ValueOfAFailureStops) {
  EXPECT_DEATH((void)half(1).value(), "check failed.*odd");
}

}  // namespace
}  // namespace deepinfer
