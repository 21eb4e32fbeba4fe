#include "tokenizer/token_map.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

TEST(TokenMap, EqualsTheReferenceMapOfTheDemoModel) {
  const Tokenizer t = Tokenizer::load("models/demo-v41/tokenizer.json").value();
  const TokenMap map = derive_token_map(t).value();
  std::ifstream file("tests/golden/v41-demo/engram_token_map.i32", std::ios::binary);
  std::vector<std::int32_t> golden(8192);
  ASSERT_TRUE(file.read(reinterpret_cast<char*>(golden.data()), 8192 * 4));
  EXPECT_EQ(map.map, golden);
  EXPECT_EQ(map.distinct_count, 6786);
}

TEST(TokenMap, CaseAndLeadingSpaceDoNotMatterButALoneSpaceStays) {
  const Tokenizer t = Tokenizer::load("models/demo-v41/tokenizer.json").value();
  const TokenMap map = derive_token_map(t).value();
  const auto of = [&](const char* text) {
    return map.map[static_cast<std::size_t>(t.find_token(text).value())];
  };
  EXPECT_EQ(of("the"), of("Ġthe"));
  EXPECT_EQ(of("The"), of("Ġthe"));
  EXPECT_NE(of("the"), of("that"));
  EXPECT_EQ(of("Ċ"), of("Ġ"));  // any run of plain white space is one space
  EXPECT_NE(of("Ġ"), of("the"));
}

// The V4.1 vocabulary has the same 128,000 base tokens and 1,280 more added ones with keys of their own:
// 97,812 + 1,280 is the 99,092 that its Engram tables were built for.
TEST(TokenMap, BaseVocabularyOfTheRealModelHasTheExpectedNumberOfKeys) {
  const char* extra = std::getenv("DEEPINFER_EXTRA_DATA");
  if (extra == nullptr) GTEST_SKIP() << "DEEPINFER_EXTRA_DATA is not set";
  const auto t = Tokenizer::load(std::string(extra) + "/tokenizers/deepseek_v3/tokenizer.json");
  ASSERT_TRUE(t.ok());
  const TokenMap map = derive_token_map(*t).value();
  EXPECT_EQ(1 + *std::max_element(map.map.begin(), map.map.begin() + 128000), 97812);
  EXPECT_EQ(map.distinct_count, 98627);
}

}  // namespace
}  // namespace deepinfer
