#include "io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <numeric>

#include "io/temp_folder.h"

namespace deepinfer {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

/// The bytes of a file with this header text and `data_bytes` zero bytes of data.
std::string file_with(std::string_view header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  out += header;
  out.append(data_bytes, '\0');
  return out;
}

class Safetensors : public ::testing::Test {
 protected:
  std::string error_of(std::string_view contents, const SafetensorsOptions& options = {}) {
    const auto file = SafetensorsFile::open(folder_.write("t.safetensors", contents), options);
    EXPECT_FALSE(file.ok());
    return file.ok() ? "" : file.error().to_string();
  }
  TempFolder folder_;
};

TEST_F(Safetensors, WriterAndReaderAgree) {
  const std::string path = folder_.file("a.safetensors");
  std::vector<float> f(6);
  std::iota(f.begin(), f.end(), 0.5f);
  const std::vector<std::uint8_t> codes = {1, 2, 3};
  {
    SafetensorsWriter writer(path);
    writer.set_metadata("format", "pt");
    ASSERT_TRUE(writer.declare("codes", DType::kF8E4M3, {3}).ok());
    ASSERT_TRUE(writer.declare("empty", DType::kI64, {0, 4}).ok());
    ASSERT_TRUE(writer.declare("f", DType::kF32, {2, 3}).ok());
    ASSERT_TRUE(writer.declare("scalar", DType::kU8, {}).ok());
    EXPECT_FALSE(writer.declare("f", DType::kF32, {2, 3}).ok());
    EXPECT_FALSE(writer.declare("__metadata__", DType::kF32, {2}).ok());
    EXPECT_FALSE(writer.declare("huge", DType::kF32, {1ll << 40, 1ll << 40}).ok());
    ASSERT_TRUE(writer.append_values<std::uint8_t>(codes).ok());
    ASSERT_TRUE(writer.append_values<float>(f).ok());
    EXPECT_FALSE(std::filesystem::exists(path)) << "the file must not appear half written";
    EXPECT_FALSE(writer.finish().ok()) << "a byte is still missing";
    ASSERT_TRUE(writer.append_values<std::uint8_t>(std::vector<std::uint8_t>{9}).ok());
    EXPECT_FALSE(writer.append_values<std::uint8_t>(std::vector<std::uint8_t>{9}).ok());
    ASSERT_TRUE(writer.finish().ok());
  }
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().to_string();
  EXPECT_EQ(file->tensors().size(), 4u);
  EXPECT_EQ(file->header_bytes().size() % 8, 0u);
  ASSERT_NE(file->find("f"), nullptr);
  EXPECT_EQ(to_f32(*file->find("f")).value(), f);  // its bytes lie at an odd offset
  EXPECT_EQ(file->find("f")->shape, (Shape{2, 3}));
  EXPECT_EQ(file->find("codes")->u8()[2], 3);
  EXPECT_EQ(file->find("empty")->elements(), 0);
  EXPECT_EQ(file->find("scalar")->elements(), 1);
  EXPECT_EQ(file->find("nothing"), nullptr);
  EXPECT_EQ(file->metadata().front().second, "pt");
  EXPECT_FALSE(to_f32(*file->find("empty")).ok()) << "integers are not silently read as reals";
}

TEST_F(Safetensors, AnAbandonedWriterLeavesNothing) {
  {
    SafetensorsWriter writer(folder_.file("a.safetensors"));
    ASSERT_TRUE(writer.declare("x", DType::kU8, {4}).ok());
    ASSERT_TRUE(writer.append_values<std::uint8_t>(std::vector<std::uint8_t>{1}).ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(Safetensors, RealFilesOpen) {
  const auto file = SafetensorsFile::open("models/tiny-v4/model-00001-of-00001.safetensors");
  ASSERT_TRUE(file.ok()) << file.error().to_string();
  EXPECT_EQ(file->tensors().size(), 304u);
  EXPECT_EQ(file->find("layers.0.ffn.gate.tid2eid")->dtype, DType::kI64);
}

TEST_F(Safetensors, FilesThatAreTooShort) {
  EXPECT_THAT(error_of(""), HasSubstr("0 bytes are too few"));
  EXPECT_THAT(error_of("1234567"), HasSubstr("7 bytes are too few"));
  EXPECT_THAT(error_of(file_with("{}", 0).substr(0, 9)), HasSubstr("claims 2 bytes, but only 1 follow"));
  const std::string good = file_with(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  EXPECT_TRUE(SafetensorsFile::open(folder_.write("ok", good)).ok());
  // Cut at every byte: an error each time, never a crash and never a silent success.
  for (std::size_t cut = 0; cut < good.size(); ++cut) {
    EXPECT_FALSE(SafetensorsFile::open(folder_.write("cut", good.substr(0, cut))).ok()) << cut;
  }
}

TEST_F(Safetensors, LyingHeaderLengths) {
  std::string huge = file_with("{}", 100);
  huge[7] = '\x7f';  // more than 2^62 bytes of header
  EXPECT_THAT(error_of(huge), HasSubstr("only 102 follow"));
  huge.replace(0, 8, 8, '\xff');
  EXPECT_THAT(error_of(huge), HasSubstr("18446744073709551615 bytes"));
  EXPECT_THAT(error_of(file_with("{}" + std::string(98, ' '), 0), {.max_header_bytes = 50}),
              HasSubstr("more than the 50 allowed"));
}

TEST_F(Safetensors, HeadersThatAreNoHeaders) {
  EXPECT_THAT(error_of(file_with("", 0)), HasSubstr("does not start with '{'"));
  EXPECT_THAT(error_of(file_with("[]", 0)), HasSubstr("does not start with '{'"));
  EXPECT_THAT(error_of(file_with("{\"a\":}", 0)), HasSubstr("not valid JSON: line 1, column 6"));
  EXPECT_THAT(error_of(file_with(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{}})", 0)),
              HasSubstr("\"a\" appears twice"));
  EXPECT_THAT(error_of(file_with(R"({"a":3})", 0)),
              HasSubstr("tensor a: expected an object, found an integer"));
  EXPECT_THAT(error_of(file_with(R"({"__metadata__":{"x":1}})", 0)), HasSubstr("\"x\" is not a string"));
  EXPECT_THAT(error_of(file_with("{\"a\":" + std::string(100, '['), 0)), HasSubstr("nested deeper"));
}

TEST_F(Safetensors, EntriesThatContradictThemselves) {
  const auto entry = [&](std::string_view fields, std::size_t data = 16) {
    return error_of(file_with("{\"t\":{" + std::string(fields) + "}}", data));
  };
  EXPECT_THAT(entry(R"("shape":[4],"data_offsets":[0,16])"),
              HasSubstr("tensor t: the top level: the field \"dtype\" is missing"));
  EXPECT_THAT(entry(R"("dtype":"F9","shape":[4],"data_offsets":[0,16])"),
              HasSubstr("tensor t: unknown element type \"F9\""));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[-4],"data_offsets":[0,16])"),
              HasSubstr("/shape/0: -4 is outside"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[4.0],"data_offsets":[0,16])"),
              HasSubstr("/shape/0: expected an integer"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":4,"data_offsets":[0,16])"),
              HasSubstr("/shape: expected an array"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[3],"data_offsets":[0,16])"),
              HasSubstr("F32 [3] needs 12 bytes"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[4],"data_offsets":[0,16,3])"),
              HasSubstr("expected [begin, end]"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[4],"data_offsets":[16,0])"), HasSubstr("run backwards"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[5],"data_offsets":[0,20])"),
              HasSubstr("pass the end of the data, which has 16 bytes"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[4],"data_offsets":[9223372036854775800,9223372036854775807])"),
              HasSubstr("pass the end"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[4],"data_offsets":[0,18446744073709551615])"),
              HasSubstr("expected an integer"));
  EXPECT_THAT(
      entry(R"("dtype":"F32","shape":[4611686018427387904,4611686018427387904],"data_offsets":[0,16])"),
      HasSubstr("larger than any file"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,16])"),
              HasSubstr("larger than any file"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[4],"data_offsets":[0,16],"x":1)"),
              HasSubstr("unknown header field \"x\""));
}

TEST_F(Safetensors, OverlapsAndHoles) {
  const auto two = [](int b0, int e0, int b1, int e1) {
    return "{\"a\":{\"dtype\":\"U8\",\"shape\":[" + std::to_string(e0 - b0) + "],\"data_offsets\":[" +
           std::to_string(b0) + "," + std::to_string(e0) + "]},\"b\":{\"dtype\":\"U8\",\"shape\":[" +
           std::to_string(e1 - b1) + "],\"data_offsets\":[" + std::to_string(b1) + "," + std::to_string(e1) +
           "]}}";
  };
  EXPECT_THAT(error_of(file_with(two(0, 8, 7, 16), 16)),
              HasSubstr("tensor b: its bytes [7, 16] overlap those of a [0, 8]"));
  EXPECT_THAT(error_of(file_with(two(0, 16, 4, 8), 16)), HasSubstr("overlap"));
  EXPECT_THAT(error_of(file_with(two(0, 8, 0, 8), 8)), HasSubstr("overlap"));
  EXPECT_THAT(error_of(file_with(two(0, 8, 9, 16), 16)),
              HasSubstr("bytes [8, 9] before tensor b belong to no tensor"));
  EXPECT_THAT(error_of(file_with(two(0, 8, 8, 16), 17)), HasSubstr("the last 1 bytes belong to no tensor"));
  EXPECT_TRUE(
      SafetensorsFile::open(folder_.write("g", file_with(two(1, 8, 9, 16), 20)), {.allow_gaps = true}).ok());
  EXPECT_THAT(error_of(file_with(two(0, 9, 8, 16), 16), {.allow_gaps = true}), HasSubstr("overlap"));
  EXPECT_TRUE(SafetensorsFile::open(folder_.write("z", file_with(two(0, 8, 8, 8), 8))).ok())
      << "empty tensors cannot overlap";
}

TEST_F(Safetensors, AllDamageIsListedInOneError) {
  std::string header = "{";
  for (int i = 0; i < 30; ++i)
    header += (i == 0 ? "" : ",") + std::string("\"t") + std::to_string(i) +
              "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,5]}";
  const std::string text = error_of(file_with(header + "}", 8));
  EXPECT_THAT(text, HasSubstr("tensor t0:"));
  EXPECT_THAT(text, HasSubstr("tensor t19:"));
  EXPECT_THAT(text, HasSubstr("... and 10 more problems of this file"));
}

// Sparse files: the sizes of the real thing without its bytes.
TEST_F(Safetensors, TensorsAbove31BitsAndFilesAbove32Bits) {
  const std::int64_t elements = (1ll << 31) + 5;  // of two bytes: data above 2^32
  const std::uint64_t first_bytes = 2ull * static_cast<std::uint64_t>(elements);
  const std::string header = "{\"big\":{\"dtype\":\"BF16\",\"shape\":[" + std::to_string(elements) +
                             "],\"data_offsets\":[0," + std::to_string(first_bytes) +
                             "]},\"last\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" +
                             std::to_string(first_bytes) + "," + std::to_string(first_bytes + 4) + "]}}";
  const std::string path = folder_.write("big.safetensors", file_with(header, 0));
  const auto end = 8 + header.size() + first_bytes + 4;
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(end)), 0);
  {
    std::fstream out(path, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(end) - 6);
    out << "\x80\x3f"
        << "wxyz";  // the last element of `big` is 1.0
  }
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().to_string();
  const TensorView* big = file->find("big");
  ASSERT_NE(big, nullptr);
  EXPECT_EQ(big->elements(), elements);
  std::uint16_t value = 0;
  big->copy_to<std::uint16_t>(elements - 1, std::span(&value, 1));
  EXPECT_EQ(value, 0x3f80);
  EXPECT_EQ(file->find("last")->u8()[3], 'z');
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(end) - 1), 0);
  EXPECT_FALSE(SafetensorsFile::open(path).ok());
}

TEST(ElementCount, NeverOverflows) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({3, 4}), 12);
  EXPECT_EQ(element_count({1ll << 62, 1ll << 62, 0}), 0);
  EXPECT_EQ(element_count({1ll << 62, 2}), std::nullopt);
  EXPECT_EQ(element_count({-1, 0}), std::nullopt);
}

}  // namespace
}  // namespace deepinfer
