#include "tokenizer/stream_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace deepinfer {
namespace {

const Tokenizer& demo() {
  static const Tokenizer tokenizer = Tokenizer::load("models/demo-v41/tokenizer.json").value();
  return tokenizer;
}

TEST(StreamDecoder, EveryPieceIsWholeAndTheSumIsTheText) {
  constexpr std::uint64_t kSeed = 31;
  std::mt19937_64 rng(kSeed);
  for (int round = 0; round < 2000; ++round) {
    std::vector<TokenId> ids;
    for (std::size_t n = rng() % 30; n > 0; --n) ids.push_back(static_cast<TokenId>(rng() % 8192));
    // Byte tokens often, so that characters are cut in all ways.
    for (TokenId& id : ids) {
      if (rng() % 2 == 0) id = demo().encode(std::string(1, static_cast<char>(rng())))[0];
    }
    StreamDecoder stream(demo());
    std::string joined;
    for (TokenId id : ids) {
      const std::string part = stream.push(id);
      ASSERT_TRUE(utf8::is_valid(part)) << "seed " << kSeed << " round " << round;
      joined += part;
      ASSERT_LE(stream.pending(), 3);
    }
    joined += stream.flush();
    ASSERT_EQ(joined, utf8::to_valid(demo().decode(ids))) << "seed " << kSeed << " round " << round;
  }
}

TEST(StreamDecoder, HoldsBackAnUnfinishedCharacter) {
  StreamDecoder stream(demo());
  const auto ids = demo().encode("\xF0\x9F");  // half of a four-byte character
  std::string text;
  for (TokenId id : ids) text += stream.push(id);
  EXPECT_EQ(text, "");
  EXPECT_EQ(stream.pending(), 2);
  StreamDecoder other = stream;  // a copy goes its own way
  other.push_bytes("\x98\x80", text);
  EXPECT_EQ(text, "😀");
  EXPECT_EQ(other.flush(), "");
  EXPECT_EQ(stream.flush(), "\uFFFD");
  EXPECT_EQ(stream.flush(), "");
}

TEST(StreamDecoder, CanLeaveOutSpecialTokens) {
  StreamDecoder with(demo()), without(demo(), true);
  EXPECT_EQ(with.push(6), "<think>");
  EXPECT_EQ(without.push(6), "");
  EXPECT_EQ(without.push(-5), "");
  EXPECT_EQ(without.push(1 << 30), "");
}

TEST(StreamDecoder, CopiesAreSmall) {
  EXPECT_LE(sizeof(StreamDecoder), 16u);
}

}  // namespace
}  // namespace deepinfer
