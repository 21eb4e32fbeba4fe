// Ids equal those of the PyPI package `tokenizers` (golden pairs written by tests/peers/tokenizer_peer.py),
// and every byte string comes back from its ids.
#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tokenizer/utf8.h"

namespace deepinfer {
namespace {

const Tokenizer& demo() {
  static const Tokenizer tokenizer = Tokenizer::load("models/demo-v41/tokenizer.json").value();
  return tokenizer;
}

std::string random_bytes(std::mt19937_64& rng, std::size_t max_size) {
  static const std::vector<std::string> pieces = {
      "the ",     " token",   "\n\n", "  ",       "毕老师",       "é",       "e\u0301", "😀", "<think>",
      "｜DSML｜", "\xE6\xAF", "\xFF", "\xC0\x80", "\xED\xA0\x80", "1234567", "'s",      "\t"};
  std::string out;
  const std::size_t size = rng() % (max_size + 1);
  while (out.size() < size) {
    if (rng() % 3 == 0) {
      out += static_cast<char>(rng());
    } else {
      out += pieces[rng() % pieces.size()];
    }
  }
  return out;
}

TEST(Tokenizer, EqualsTheTokenizersPackageOnGoldenPairs) {
  std::ifstream file("tests/tokenizer/data/demo_encode.jsonl");
  ASSERT_TRUE(file.is_open());
  std::string line;
  int count = 0, with_special = 0;
  while (std::getline(file, line)) {
    const auto row = nlohmann::json::parse(line);
    const auto text = row["text"].get<std::string>();
    const auto ids = row["ids"].get<std::vector<TokenId>>();
    ASSERT_EQ(demo().encode(text), ids) << "line " << count + 1;
    const auto special = row.contains("ids_special") ? row["ids_special"].get<std::vector<TokenId>>() : ids;
    ASSERT_EQ(demo().encode(text, {.parse_special = true}), special) << "line " << count + 1;
    ASSERT_EQ(demo().decode(ids), text) << "line " << count + 1;
    with_special += row.contains("ids_special") ? 1 : 0;
    ++count;
  }
  EXPECT_GT(count, 100);
  EXPECT_GT(with_special, 10);
}

TEST(Tokenizer, EqualsThePromptIdsOfTheGoldenCompletions) {
  std::ifstream file("tests/golden/v41-demo/demo_golden.json");
  const auto golden = nlohmann::json::parse(file);
  int count = 0;
  for (const auto& row : golden["greedy"]["official_ix32"]) {
    const auto ids = demo().encode(row["prompt"].get<std::string>(), {.parse_special = true});
    EXPECT_EQ(ids, row["prompt_ids"].get<std::vector<TokenId>>());
    ++count;
  }
  EXPECT_EQ(count, 12);
}

TEST(Tokenizer, EqualsTheVectorsOfARealVocabulary) {
  const char* extra = std::getenv("DEEPINFER_EXTRA_DATA");
  if (extra == nullptr) GTEST_SKIP() << "DEEPINFER_EXTRA_DATA is not set";
  const std::string folder = std::string(extra) + "/tokenizers/";
  const auto tokenizer = Tokenizer::load(folder + "deepseek_v3/tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  EXPECT_EQ(tokenizer->vocab_size(), 128815);
  std::ifstream file(folder + "vectors.json");
  const auto vectors = nlohmann::json::parse(file);
  ASSERT_FALSE(vectors.empty());
  for (const auto& v : vectors) {
    EXPECT_EQ(tokenizer->encode(v["text"].get<std::string>()), v["ids"].get<std::vector<TokenId>>());
  }
}

TEST(Tokenizer, EveryByteStringComesBackFromItsIds) {
  constexpr std::uint64_t kSeed = 20240611;
  std::mt19937_64 rng(kSeed);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random_bytes(rng, i % 50 == 0 ? 4000 : 60);
    ASSERT_EQ(demo().decode(demo().encode(text)), text) << "seed " << kSeed << " round " << i;
    ASSERT_EQ(demo().decode(demo().encode(text, {.parse_special = true})), text)
        << "seed " << kSeed << " round " << i;
  }
}

TEST(Tokenizer, EachInvalidByteIsItsOwnTokenAndCutsTheText) {
  const Tokenizer& t = demo();
  const auto ids = t.encode("hello\xFFworld");
  std::vector<TokenId> want = t.encode("hello");
  const auto tail = t.encode("world");
  const auto byte = t.encode("\xFF");
  ASSERT_EQ(byte.size(), 1u);
  want.push_back(byte[0]);
  want.insert(want.end(), tail.begin(), tail.end());
  EXPECT_EQ(ids, want);
  EXPECT_EQ(t.encode("\xE6\xAF").size(), 2u);  // a cut character: two bytes, two tokens
}

TEST(Tokenizer, ControlTokensInTextAreOnlyMatchedWhenAsked) {
  const Tokenizer& t = demo();
  const std::string text = "a<｜User｜>b<think>";
  const TokenId user = t.find_token("<｜User｜>").value();
  const TokenId think = t.find_token("<think>").value();
  EXPECT_EQ(user, 4);
  const auto plain = t.encode(text);
  for (TokenId id : plain) EXPECT_FALSE(t.is_added(id)) << id;
  std::vector<TokenId> want = t.encode("a");
  want.push_back(user);
  want.push_back(t.encode("b").at(0));
  want.push_back(think);
  EXPECT_EQ(t.encode(text, {.parse_special = true}), want);
  EXPECT_EQ(t.decode(plain), text);
}

TEST(Tokenizer, SegmentsJoinNeighbouringTextAndKeepGivenIds) {
  const Tokenizer& t = demo();
  using Kind = PromptSegment::Kind;
  const std::vector<PromptSegment> segments = {{Kind::kToken, "", 0, -1},
                                               {Kind::kText, "hel", 0, -1},
                                               {Kind::kText, "lo", 0, -1},
                                               {Kind::kImage, "", 10, 0},
                                               {Kind::kText, "<think>", 0, -1}};
  std::vector<TokenId> want = {0};
  for (TokenId id : t.encode("hello")) want.push_back(id);
  want.push_back(10);
  for (TokenId id : t.encode("<think>")) want.push_back(id);
  EXPECT_EQ(t.encode_segments(segments), want);
}

TEST(Tokenizer, KnowsItsVocabulary) {
  const Tokenizer& t = demo();
  EXPECT_EQ(t.vocab_size(), 8192);
  EXPECT_TRUE(t.uses_fast_split());
  EXPECT_TRUE(t.is_special(0));
  EXPECT_TRUE(t.is_added(8));
  EXPECT_FALSE(t.is_special(100));
  EXPECT_EQ(t.token_bytes(8), "｜DSML｜");
  EXPECT_EQ(t.token_bytes(-1), "");
  EXPECT_EQ(t.token_bytes(8192), "");
  EXPECT_FALSE(t.is_special(8192));
  EXPECT_FALSE(t.find_token("no such token").has_value());
  const TokenId space_the = t.find_token("Ġthe").value();
  EXPECT_EQ(t.token_bytes(space_the), " the");
  EXPECT_EQ(t.token_text(space_the), "Ġthe");
  for (TokenId id = 0; id < 8192; ++id) ASSERT_EQ(t.find_token(t.token_text(id)), id);
}

TEST(Tokenizer, LongPiecesMergeAsShortOnes) {
  // 48 bytes is where the merge algorithm changes; a run of one letter has the most merges to choose from.
  const Tokenizer& t = demo();
  for (std::size_t n : {1u, 47u, 48u, 49u, 50u, 1000u, 200000u}) {
    const std::string text(n, 'a');
    EXPECT_EQ(t.decode(t.encode(text)), text) << n;
  }
  // The merged form of a long run is that of its parts as long as the parts end where tokens end.
  const auto one = t.encode(std::string(49, 'a')), other = t.encode(std::string(48, 'a'));
  EXPECT_GE(one.size(), other.size());
}

TEST(Tokenizer, ManyThreadsGetTheSameIds) {
  std::vector<std::string> texts;
  std::mt19937_64 rng(99);
  for (int i = 0; i < 300; ++i) texts.push_back(random_bytes(rng, 200));
  std::vector<std::vector<TokenId>> want;
  for (const auto& text : texts) want.push_back(demo().encode(text));
  std::vector<std::thread> threads;
  std::vector<int> equal(4, 0);
  for (std::size_t k = 0; k < equal.size(); ++k) {
    threads.emplace_back([&, k] {
      const Tokenizer copy = demo();
      for (std::size_t i = 0; i < texts.size(); ++i) equal[k] += copy.encode(texts[i]) == want[i] ? 1 : 0;
    });
  }
  for (auto& thread : threads) thread.join();
  for (int n : equal) EXPECT_EQ(n, 300);
}

TEST(Tokenizer, TwoTokenizersInOneThreadDoNotShareCachedPieces) {
  std::ifstream file("models/demo-v41/tokenizer.json");
  auto spec = nlohmann::json::parse(file);
  spec["model"]["merges"] = nlohmann::json::array();
  const Tokenizer bytes_only = Tokenizer::parse(spec.dump()).value();
  const std::string text = "zyxwvut zyxwvut";
  const auto merged = demo().encode(text);
  EXPECT_EQ(bytes_only.encode(text).size(), text.size());
  EXPECT_EQ(demo().encode(text), merged);
  EXPECT_LT(merged.size(), text.size());
}

TEST(Tokenizer, BothSpellingsOfMergesGiveTheSameIds) {
  std::ifstream file("models/demo-v41/tokenizer.json");
  auto spec = nlohmann::json::parse(file);
  for (auto& merge : spec["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  const Tokenizer other = Tokenizer::parse(spec.dump()).value();
  std::mt19937_64 rng(5);
  for (int i = 0; i < 200; ++i) {
    const std::string text = random_bytes(rng, 100);
    ASSERT_EQ(other.encode(text), demo().encode(text));
  }
}

TEST(Utf8, ValidationAcceptsExactlyTheWellFormed) {
  for (char32_t c : {U'\0', U'\x7F', U'\x80', U'\x7FF', U'\x800', U'\xD7FF', U'\xE000', U'\xFFFF', U'\x10000',
                     U'\x10FFFF'}) {
    std::string text;
    utf8::append(text, c);
    const utf8::Unit unit = utf8::next(text, 0);
    EXPECT_TRUE(unit.valid);
    EXPECT_EQ(unit.code_point, c);
    EXPECT_EQ(unit.length, text.size());
  }
  for (const char* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
                          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE6\xAF", "\xC3"}) {
    EXPECT_FALSE(utf8::is_valid(bad));
  }
  // The standard's example of maximal subparts: one replacement for each.
  EXPECT_EQ(utf8::to_valid("a\xF1\x80\x80\xE1\x80\xC2"
                           "b"),
            "a\uFFFD\uFFFD\uFFFDb");
}

}  // namespace
}  // namespace deepinfer
