// The hand-written DeepSeek splitter against the regular expressions themselves, and the pattern translation.
#include "tokenizer/pretokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "tokenizer/utf8.h"

namespace deepinfer {
namespace {

std::vector<std::string> patterns_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> out;
  const auto spec = nlohmann::json::parse(file);
  for (const auto& part : spec["pre_tokenizer"]["pretokenizers"]) {
    if (part["type"] == "Split") out.push_back(part["pattern"]["Regex"]);
  }
  return out;
}

std::vector<std::string> pieces(const PreTokenizer& p, std::string_view text) {
  std::vector<std::string> out;
  p.for_each_piece(text, [&](std::string_view piece) { out.emplace_back(piece); });
  return out;
}

// Characters on both sides of every border in the rules. Only characters of Unicode 14 and older, whose
// classes the installed PCRE2 knows.
std::string random_text(std::mt19937_64& rng) {
  static constexpr char32_t kInteresting[] = {
      'a',     'Z',     ' ',     ' ',     '\t',   '\r',   '\n',    '\n',   0x0B,   0x85,   0xA0,   0x3000,
      0x2028,  0x180E,  0x1C,    0x00,    0x7F,   0xAD,   0x200B,  '0',    '9',    0x663,  0x2167, 0xBD,
      0x3007,  '!',     '\'',    '_',     '^',    '`',    '~',     '+',    0xAB,   0x20AC, 0x2192, 0xFF0C,
      0x3002,  0x301,   0x0903,  0x20DD,  0xE9,   0x3B1,  0x430,   0x5D0,  0x4DFF, 0x4E00, 0x9FA5, 0x9FA6,
      0x303F,  0x3040,  0x3041,  0x3099,  0x309B, 0x309F, 0x30A0,  0x30A1, 0x30FB, 0x30FF, 0x3100, 0x3105,
      0x20000, 0x1F600, 0x1D7D8, 0xE0001, 0xE000, 0xFFFD, 0x10FFFF};
  std::string out;
  const std::size_t size = rng() % 24;
  for (std::size_t i = 0; i < size; ++i) utf8::append(out, kInteresting[rng() % std::size(kInteresting)]);
  return out;
}

TEST(PreTokenizer, RecognisesTheDeepSeekRulesInEitherSpelling) {
  const auto patterns = patterns_of("models/demo-v41/tokenizer.json");
  ASSERT_EQ(patterns.size(), 3u);
  EXPECT_TRUE(PreTokenizer::create(patterns).value().uses_scan());
  auto raw = patterns;
  for (std::size_t at; (at = raw[2].find("\\r\\n")) != std::string::npos;) raw[2].replace(at, 4, "\r\n");
  ASSERT_NE(raw, patterns);
  EXPECT_TRUE(PreTokenizer::create(raw).value().uses_scan());
  auto other = patterns;
  other[0] = "\\p{N}{1,2}";
  EXPECT_FALSE(PreTokenizer::create(other).value().uses_scan());
}

TEST(PreTokenizer, HandWrittenPassEqualsPcre2PieceByPiece) {
  constexpr std::uint64_t kSeed = 4711;
  std::mt19937_64 rng(kSeed);
  const auto patterns = patterns_of("models/demo-v41/tokenizer.json");
  const PreTokenizer scan = PreTokenizer::create(patterns).value();
  const PreTokenizer pcre = PreTokenizer::create(patterns, PreTokenizer::Engine::kPcre2).value();
  ASSERT_TRUE(scan.uses_scan());
  ASSERT_FALSE(pcre.uses_scan());
  for (int i = 0; i < 60000; ++i) {
    const std::string text = random_text(rng);
    ASSERT_EQ(pieces(scan, text), pieces(pcre, text)) << "seed " << kSeed << " round " << i << ": " << text;
  }
}

TEST(PreTokenizer, SplitsAsTheRulesSay) {
  const PreTokenizer p = PreTokenizer::create(patterns_of("models/demo-v41/tokenizer.json")).value();
  using V = std::vector<std::string>;
  EXPECT_EQ(pieces(p, "Hello  world"), (V{"Hello", " ", " world"}));
  EXPECT_EQ(pieces(p, "12345"), (V{"123", "45"}));
  EXPECT_EQ(pieces(p, "a  1"), (V{"a", "  ", "1"}));  // a digit ends the text for the white-space rule
  EXPECT_EQ(pieces(p, "x = y;\n\n  z"), (V{"x", " =", " y", ";\n\n", " ", " z"}));
  EXPECT_EQ(pieces(p, "毕老师！好"), (V{"毕老师", "！", "好"}));
  EXPECT_EQ(pieces(p, "don't_stop"), (V{"don", "'t", "_stop"}));
  EXPECT_EQ(pieces(p, "'ré"), (V{"'r", "é"}));
  EXPECT_EQ(pieces(p, "ア・イ"), (V{"ア", "・", "イ"}));
  EXPECT_EQ(pieces(p, " \n \n  "), (V{" \n \n", "  "}));
  EXPECT_EQ(pieces(p, std::string_view("\x01\x02")), (V{"\x01\x02"}));
}

TEST(PreTokenizer, OtherPatternsRunInPcre2) {
  const PreTokenizer p = PreTokenizer::create({kByteLevelPattern}).value();
  using V = std::vector<std::string>;
  EXPECT_EQ(pieces(p, "I'll go  to 42 places!?"), (V{"I", "'ll", " go", " ", " to", " 42", " places", "!?"}));
  const PreTokenizer digits = PreTokenizer::create({"\\d"}).value();
  EXPECT_EQ(pieces(digits, "ab12c"), (V{"ab", "1", "2", "c"}));
  const PreTokenizer empty_matches = PreTokenizer::create({"x*"}).value();
  EXPECT_EQ(pieces(empty_matches, "axxbé"), (V{"a", "xx", "bé"}));
  const PreTokenizer literal = PreTokenizer::create({quote_pattern("a.b")}).value();
  EXPECT_EQ(pieces(literal, "aXba.bc"), (V{"aXb", "a.b", "c"}));
}

TEST(PreTokenizer, WhiteSpaceMeansTheUnicodeProperty) {
  EXPECT_EQ(translate_pattern("\\s+(?!\\S)").value(), "\\p{White_Space}+(?!\\P{White_Space})");
  EXPECT_EQ(translate_pattern("[^\\s\\p{L}]").value(), "[^\\p{White_Space}\\p{L}]");
  const PreTokenizer p = PreTokenizer::create({"\\s"}).value();
  EXPECT_EQ(pieces(p, "a\u180Eb").size(),
            1u);  // no white space since Unicode 6.3, though PCRE2's own \s matches it
  EXPECT_EQ(pieces(p, "a\u0085b").size(), 3u);
}

TEST(PreTokenizer, RefusesByNameWhatTheTwoSyntaxesReadDifferently) {
  for (const char* pattern :
       {"[a[bc]]", "[a-z&&b]", "\\h", "^a", "a$", "\\bword", "(?<name>x)", "\\K", "(*UTF)", "[\\W]"}) {
    const auto made = PreTokenizer::create({pattern});
    ASSERT_FALSE(made.ok()) << pattern;
    EXPECT_EQ(made.error().code, ErrorCode::kUnsupported) << pattern;
  }
  for (const char* pattern : {"(", "a{2,1}", "\\p{Nonsense}", "[a", "x\\"}) {
    const auto made = PreTokenizer::create({pattern});
    ASSERT_FALSE(made.ok()) << pattern;
    EXPECT_EQ(made.error().code, ErrorCode::kCorrupt) << pattern;
  }
}

}  // namespace
}  // namespace deepinfer
