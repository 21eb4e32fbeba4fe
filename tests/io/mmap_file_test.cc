#include "io/mmap_file.h"

#include <gtest/gtest.h>

#include "io/temp_folder.h"

namespace deepinfer {
namespace {

using testing::TempFolder;

TEST(MmapFile, MapsWhatIsThereAndMoves) {
  const TempFolder folder;
  Result<MmapFile> file = MmapFile::open(folder.write("a", "hello"));
  ASSERT_TRUE(file.ok());
  MmapFile moved = std::move(*file);
  EXPECT_EQ(moved.text(), "hello");
  file->advise(0, 5, MmapAdvice::kRandom);  // the moved-from mapping is empty: no effect
  moved.advise(0, 1 << 20, MmapAdvice::kWillNeed);
  moved.advise(100, 1, MmapAdvice::kSequential);
  MmapFile other;
  other = std::move(moved);
  EXPECT_EQ(other.text(), "hello");
  EXPECT_EQ(moved.size_bytes(), 0u);
}

TEST(MmapFile, EmptyFileIsAnEmptySpan) {
  const TempFolder folder;
  const Result<MmapFile> file = MmapFile::open(folder.write("a", ""));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->bytes().empty());
}

TEST(MmapFile, ErrorsNameThePath) {
  const TempFolder folder;
  const auto missing = MmapFile::open(folder.file("nothing"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(missing.error().to_string(), folder.file("nothing") + ": no such file");
  const auto directory = MmapFile::open(folder.path());
  ASSERT_FALSE(directory.ok());
  EXPECT_EQ(directory.error().code, ErrorCode::kInvalidArgument);
  const auto device = MmapFile::open("/dev/null");
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().code, ErrorCode::kInvalidArgument);
}

TEST(ReadTextFile, HoldsItsBound) {
  const TempFolder folder;
  const std::string path = folder.write("a", "12345");
  EXPECT_EQ(read_text_file(path, 5).value(), "12345");
  EXPECT_FALSE(read_text_file(path, 4).ok());
}

}  // namespace
}  // namespace deepinfer
