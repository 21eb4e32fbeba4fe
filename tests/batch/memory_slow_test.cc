#include <gtest/gtest.h>

#include <cstdio>

#include "batch/batch_files.h"
#include "batch/child.h"

namespace deepinfer {
namespace {

using testing::peak_kib;
using testing::TempFolder;

TEST(BatchMemory, PrivateMemoryIsTheSameForAMillionLines) {
  const TempFolder folder;
  const std::int64_t small = peak_kib(folder, 100'000);
  const std::int64_t large = peak_kib(folder, 1'000'000);
  std::printf("private memory: %lld KiB over 100,000 lines, %lld KiB over 1,000,000\n",
              static_cast<long long>(small), static_cast<long long>(large));
  EXPECT_LT(large, small + 2048);
}

}  // namespace
}  // namespace deepinfer
