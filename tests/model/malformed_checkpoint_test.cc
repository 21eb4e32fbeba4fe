// A user's broken model folder: every kind of damage ends in one error that names the file and what is wrong
// with it, before anything large is allocated. The same cases run under AddressSanitizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "io/temp_folder.h"
#include "model/open_model.h"

namespace deepinfer {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::read_file;
using testing::TempFolder;

constexpr const char* kFirst = "model-00001-of-00002.safetensors";
constexpr const char* kSecond = "model-00002-of-00002.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

class MalformedCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const auto& entry : fs::directory_iterator("models/demo-v41"))
      fs::create_symlink(fs::absolute(entry.path()), folder_.file(entry.path().filename().string()));
  }
  /// Replaces a file of the folder; the original stays untouched.
  void replace(const std::string& name, std::string_view contents) {
    fs::remove(folder_.file(name));
    folder_.write(name, contents);
  }
  std::string original(const std::string& name) { return read_file("models/demo-v41/" + name); }
  std::string error() {
    const auto model =
        open_model(folder_.path(), {.max_rows = 16, .block_count = 1, .slot_count = 1, .threads = 1});
    EXPECT_FALSE(model.ok());
    return model.ok() ? "" : model.error().to_string();
  }
  /// The first shard with its header text changed; the length field follows unless `keep_length`.
  void edit_header(const std::string& from, const std::string& to, bool keep_length = false) {
    std::string file = original(kFirst);
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), 8);
    std::string header = file.substr(8, length);
    const std::size_t at = header.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    header.replace(at, from.size(), to);
    if (!keep_length) length = header.size();
    std::string length_bytes(8, '\0');
    std::memcpy(length_bytes.data(), &length, 8);
    std::uint64_t old = 0;
    std::memcpy(&old, file.data(), 8);
    replace(kFirst, length_bytes + header + file.substr(8 + old));
  }
  TempFolder folder_;
};

TEST_F(MalformedCheckpoint, TheUndamagedFolderOpens) {
  const auto model =
      open_model(folder_.path(), {.max_rows = 16, .block_count = 1, .slot_count = 1, .threads = 1});
  EXPECT_TRUE(model.ok()) << model.error().to_string();
}

TEST_F(MalformedCheckpoint, TruncatedShard) {
  const std::string file = original(kFirst);
  replace(kFirst, std::string_view(file).substr(0, file.size() - 1));
  EXPECT_THAT(error(), AllOf(HasSubstr(kFirst), HasSubstr("pass the end of the data")));
  replace(kFirst, std::string_view(file).substr(0, 1000));
  EXPECT_THAT(error(), AllOf(HasSubstr(kFirst), HasSubstr("the header claims")));
  replace(kFirst, "");
  EXPECT_THAT(error(), AllOf(HasSubstr(kFirst), HasSubstr("0 bytes are too few")));
}

TEST_F(MalformedCheckpoint, OversizedShard) {
  replace(kFirst, original(kFirst) + "more");
  EXPECT_THAT(error(), AllOf(HasSubstr(kFirst), HasSubstr("the last 4 bytes belong to no tensor")));
}

TEST_F(MalformedCheckpoint, LyingHeader) {
  edit_header("\"shape\":[8192,256]", "\"shape\":[8192,257]");
  EXPECT_THAT(error(), HasSubstr("BF16 [8192, 257] needs 4210688 bytes"));
  edit_header("\"dtype\":\"BF16\"", "\"dtype\":\"BF17\"");
  EXPECT_THAT(error(), HasSubstr("unknown element type \"BF17\""));
  edit_header("\"data_offsets\":[0,", "\"data_offsets\":[1,");
  EXPECT_THAT(error(), HasSubstr("needs 4194304 bytes"));
  edit_header("{", "[", true);
  EXPECT_THAT(error(), HasSubstr("not a safetensors file"));
  std::string file = original(kFirst);
  file[7] = '\x7f';
  replace(kFirst, file);
  EXPECT_THAT(error(), HasSubstr("the header claims"));
}

TEST_F(MalformedCheckpoint, OverlappingTensors) {
  // head.weight moved onto embed.weight, which has the same size and type.
  edit_header("\"data_offsets\":[4194304,8388608]", "\"data_offsets\":[0,4194304]");
  EXPECT_THAT(error(), HasSubstr("overlap"));
}

TEST_F(MalformedCheckpoint, MissingShard) {
  fs::remove(folder_.file(kSecond));
  EXPECT_THAT(error(), AllOf(HasSubstr(kSecond), HasSubstr("is missing")));
}

TEST_F(MalformedCheckpoint, IndexAndShardsDisagree) {
  std::string index = original(kIndex);
  const std::size_t at = index.find("\"norm.weight\"");
  ASSERT_NE(at, std::string::npos);
  index.replace(at, 13, "\"nurm.weight\"");
  replace(kIndex, index);
  EXPECT_THAT(error(),
              AllOf(HasSubstr("tensor norm.weight is in"), HasSubstr("tensor nurm.weight is listed")));
  replace(kIndex, std::string_view(index).substr(0, index.size() / 2));
  EXPECT_THAT(error(), AllOf(HasSubstr(kIndex), HasSubstr("not valid JSON")));
}

TEST_F(MalformedCheckpoint, BrokenConfiguration) {
  const std::string config = original("config.json");
  for (const std::string_view broken : {std::string_view(config).substr(0, config.size() - 3),
                                        std::string_view("\xff\xfe{}"), std::string_view("null")}) {
    replace("config.json", broken);
    EXPECT_THAT(error(), HasSubstr("config.json"));
  }
  fs::remove(folder_.file("config.json"));
  EXPECT_THAT(error(), HasSubstr("config.json: no such file"));
}

TEST_F(MalformedCheckpoint, ConfigurationOfAnotherModel) {
  std::string config = original("config.json");
  const std::size_t at = config.find("\"q_lora_rank\": 96");
  ASSERT_NE(at, std::string::npos);
  config.replace(at, 17, "\"q_lora_rank\": 64");
  replace("config.json", config);
  EXPECT_THAT(error(), AllOf(HasSubstr("do not match config.json"),
                             HasSubstr("layers.0.attn.wq_a.weight has shape [96, 256], expected [64, 256]")));
}

TEST_F(MalformedCheckpoint, NoSuchFolder) {
  EXPECT_EQ(open_model(folder_.file("nowhere")).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace deepinfer
