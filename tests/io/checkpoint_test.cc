#include "io/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "io/temp_folder.h"

namespace deepinfer {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

struct Piece {
  std::string name;
  std::uint8_t value;
};

void write_shard(const TempFolder& folder, const std::string& file, const std::vector<Piece>& pieces) {
  SafetensorsWriter writer(folder.file(file));
  for (const Piece& p : pieces) ASSERT_TRUE(writer.declare(p.name, DType::kU8, {1}).ok());
  for (const Piece& p : pieces)
    ASSERT_TRUE(writer.append_values<std::uint8_t>(std::vector<std::uint8_t>{p.value}).ok());
  ASSERT_TRUE(writer.finish().ok());
}

class CheckpointFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.write("config.json", "{}");
    write_shard(folder_, "s1.safetensors", {{"a", 1}, {"b", 2}});
    write_shard(folder_, "s2.safetensors", {{"c", 3}});
    index(
        R"({"metadata":{"total_size":3},"weight_map":{"a":"s1.safetensors","b":"s1.safetensors","c":"s2.safetensors"}})");
  }
  void index(std::string_view text) { folder_.write("model.safetensors.index.json", text); }
  std::string error() {
    const auto checkpoint = Checkpoint::open(folder_.path());
    EXPECT_FALSE(checkpoint.ok());
    return checkpoint.ok() ? "" : checkpoint.error().to_string();
  }
  TempFolder folder_;
};

TEST_F(CheckpointFolder, OpensAndFindsTensors) {
  const auto checkpoint = Checkpoint::open(folder_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().to_string();
  EXPECT_EQ(checkpoint->names(), (std::vector<std::string_view>{"a", "b", "c"}));
  EXPECT_EQ(checkpoint->find("c")->u8()[0], 3);
  EXPECT_EQ(checkpoint->shard_of("c"), 1);
  EXPECT_EQ(checkpoint->shard_of("x"), -1);
  EXPECT_EQ(checkpoint->find("x"), nullptr);
  EXPECT_EQ(checkpoint->tensor_bytes(), 3u);
  EXPECT_EQ(checkpoint->config_text(), "{}");
}

TEST_F(CheckpointFolder, ViewsSurviveMoves) {
  auto checkpoint = Checkpoint::open(folder_.path());
  ASSERT_TRUE(checkpoint.ok());
  const TensorView view = *checkpoint->find("a");
  const Checkpoint moved = std::move(*checkpoint);
  EXPECT_EQ(view.u8()[0], 1);
  EXPECT_EQ(moved.find("a")->data.data(), view.data.data());
}

TEST_F(CheckpointFolder, EverythingWrongIsInOneError) {
  std::filesystem::remove(folder_.file("s2.safetensors"));
  write_shard(folder_, "s3.safetensors", {{"a", 1}, {"new", 1}});
  folder_.write("s4.safetensors", "broken");
  index(
      R"({"weight_map":{"a":"s1.safetensors","c":"s2.safetensors","d":"s3.safetensors","e":"s4.safetensors"}})");
  const std::string text = error();
  EXPECT_THAT(text, HasSubstr("shard s2.safetensors is missing (1 tensors are in it)"));
  EXPECT_THAT(text, HasSubstr("s4.safetensors: 6 bytes are too few"));
  EXPECT_THAT(text, HasSubstr("tensor b is in s1.safetensors but not in the index"));
  EXPECT_THAT(text, HasSubstr("tensor a is in s1.safetensors and in s3.safetensors"));
  EXPECT_THAT(text, HasSubstr("tensor new is in s3.safetensors but not in the index"));
  EXPECT_THAT(text, HasSubstr("tensor d is listed for s3.safetensors but not in it"));
}

TEST_F(CheckpointFolder, IndexAndShardDisagree) {
  index(R"({"weight_map":{"a":"s1.safetensors","b":"s2.safetensors","c":"s2.safetensors"}})");
  EXPECT_THAT(error(), HasSubstr("tensor b is in s1.safetensors, but the index says s2.safetensors"));
}

TEST_F(CheckpointFolder, ManyProblemsAreCutNotHidden) {
  std::string map;
  for (int i = 0; i < 100; ++i) map += ",\"x" + std::to_string(i) + "\":\"s1.safetensors\"";
  index(R"({"weight_map":{"a":"s1.safetensors","b":"s1.safetensors","c":"gone.safetensors")" + map + "}}");
  const std::string text = error();
  EXPECT_THAT(text, HasSubstr("... and 90 more lost tensors"));
  EXPECT_THAT(text, HasSubstr("shard gone.safetensors is missing"));
}

TEST_F(CheckpointFolder, BrokenIndexFiles) {
  index("{\"weight_map\":");
  EXPECT_THAT(error(), HasSubstr("index.json: not valid JSON: line 1"));
  index("{}");
  EXPECT_THAT(error(), HasSubstr("the field \"weight_map\" is missing"));
  index(R"({"weight_map":{}})");
  EXPECT_THAT(error(), HasSubstr("names no tensor"));
  index(R"({"weight_map":{"a":7}})");
  EXPECT_THAT(error(), HasSubstr("/weight_map/a: expected a string"));
  for (const char* name : {"../s1.safetensors", "/etc/passwd", "", ".."}) {
    index(R"({"weight_map":{"a":")" + std::string(name) + "\"}}");
    EXPECT_THAT(error(), HasSubstr("is not a file name")) << name;
  }
}

TEST_F(CheckpointFolder, WithoutIndexOneFileIsEnoughAndTwoAreNot) {
  std::filesystem::remove(folder_.file("model.safetensors.index.json"));
  EXPECT_THAT(error(), HasSubstr("2 .safetensors files but no model.safetensors.index.json"));
  std::filesystem::remove(folder_.file("s2.safetensors"));
  EXPECT_EQ(Checkpoint::open(folder_.path())->names().size(), 2u);
  std::filesystem::remove(folder_.file("s1.safetensors"));
  EXPECT_THAT(error(), HasSubstr("no weights"));
}

TEST_F(CheckpointFolder, MissingFolderAndConfig) {
  EXPECT_EQ(Checkpoint::open(folder_.file("nowhere")).error().code, ErrorCode::kNotFound);
  std::filesystem::remove(folder_.file("config.json"));
  EXPECT_THAT(error(), HasSubstr("config.json: no such file"));
}

TEST_F(CheckpointFolder, HashesFollowTheContent) {
  const auto first = Checkpoint::open(folder_.path());
  const TempFolder copy;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
    std::filesystem::copy(entry.path(), copy.file(entry.path().filename().string()));
  const auto second = Checkpoint::open(copy.path());
  EXPECT_EQ(first->fingerprint().size(), 32u);
  EXPECT_EQ(first->fingerprint(), second->fingerprint());
  EXPECT_EQ(first->full_hash(), second->full_hash());
  EXPECT_NE(first->full_hash(), first->fingerprint());

  write_shard(copy, "s2.safetensors", {{"c", 4}});
  const auto changed = Checkpoint::open(copy.path());
  EXPECT_NE(changed->fingerprint(), first->fingerprint());
  EXPECT_NE(changed->full_hash(), first->full_hash());

  write_shard(copy, "s2.safetensors", {{"c", 3}});
  copy.write("config.json", "{ }");
  EXPECT_NE(Checkpoint::open(copy.path())->fingerprint(), first->fingerprint());
}

TEST(CheckpointHash, FullHashSeesEveryByteOfLargeData) {
  const TempFolder folder;
  folder.write("config.json", "{}");
  std::vector<std::uint8_t> data(3 << 20);
  const auto write = [&] {
    SafetensorsWriter writer(folder.file("model.safetensors"));
    ASSERT_TRUE(writer.declare("x", DType::kU8, {static_cast<std::int64_t>(data.size())}).ok());
    ASSERT_TRUE(writer.append_values<std::uint8_t>(data).ok());
    ASSERT_TRUE(writer.finish().ok());
  };
  write();
  const auto before = Checkpoint::open(folder.path());
  const std::string full = before->full_hash();
  const std::string fast = before->fingerprint();
  data[100 << 10] ^= 1;  // between two samples
  write();
  const auto between = Checkpoint::open(folder.path());
  EXPECT_NE(between->full_hash(), full);
  EXPECT_EQ(between->fingerprint(), fast) << "documented: only sampled bytes count";
  data.back() ^= 1;  // the last sample ends at the last byte
  write();
  EXPECT_NE(Checkpoint::open(folder.path())->fingerprint(), fast);
}

TEST(Checkpoint, DemoModelOpens) {
  const auto checkpoint = Checkpoint::open("models/demo-v41");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().to_string();
  EXPECT_EQ(checkpoint->tensor_count(), 2064u);
  EXPECT_EQ(checkpoint->tensor_bytes(), 29664768u);  // metadata.total_size of its index
  EXPECT_EQ(checkpoint->shards().size(), 2u);
}

}  // namespace
}  // namespace deepinfer
