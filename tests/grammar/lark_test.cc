#include <gtest/gtest.h>

#include <ctime>

#include "grammar/front_ends.h"
#include "grammar/matcher.h"
#include "grammar/walk_vocabulary.h"

namespace deepinfer::grammar {
namespace {

using testing::byte_vocabulary;
using testing::whole_match;

std::string error_of(std::string_view text) {
  auto r = compile_lark(text, byte_vocabulary());
  return r.ok() ? "accepted" : r.error().to_string();
}

void expect_texts(std::string_view grammar, std::initializer_list<const char*> good,
                  std::initializer_list<const char*> bad) {
  const auto g = compile_lark(grammar, byte_vocabulary());
  ASSERT_TRUE(g.ok()) << grammar << ": " << g.error().to_string();
  for (const char* t : good) EXPECT_TRUE(whole_match(g.value(), t)) << grammar << " refuses '" << t << "'";
  for (const char* t : bad) EXPECT_FALSE(whole_match(g.value(), t)) << grammar << " accepts '" << t << "'";
}

constexpr const char* kCalculator = R"LARK(
?start: sum
?sum: product | sum "+" product -> add
    | sum "-" product -> sub
?product: atom
    | product "*" atom  // left recursion
    | product "/" atom
?atom: NUMBER -> number | "-" atom -> neg | "(" sum ")"
%import common.NUMBER
%import common.WS_INLINE
%ignore WS_INLINE
)LARK";

TEST(Lark, CalculatorWithIgnoredBlanks) {
  expect_texts(kCalculator, {"1", "1+2", " 1 + 2*( 3 - 4.5 ) ", "--1", "1e5/2"},
               {"", "1+", "(1", "1 2", "1\n"});
}

TEST(Lark, StringsRangesAndRepetition) {
  expect_texts("start: \"a\" | \"b\"i \"c\"", {"a", "bc", "Bc"}, {"A", "bC"});
  expect_texts("start: X~2 Y~1..3\nX: \"x\"\nY: \"0\"..\"9\"", {"xx1", "xx123"}, {"x1", "xx", "xx1234"});
  expect_texts("start: [\"a\"] (\"b\" | \"c\")+", {"b", "abcb"}, {"a", ""});
  expect_texts("start: /[a-c]+/i \"\\n\"", {"abC\n"}, {"abc", "d\n"});
  expect_texts("start: A B\nA.2: \"a\"\nB: A \"b\" A", {"aaba"}, {"aab", "a aba"});
  expect_texts("start: X{2,3}\nX: /é|\\u4e2d/", {"éé", "é中é"}, {"é"});
  expect_texts("start: item (\",\" item)*\nitem: \"x\"\n%ignore / +/\n%ignore \"\\t\"", {"x, x\t,x "},
               {"x x"});
}

TEST(Lark, TerminalsMeetInIntersectionAndComplement) {
  expect_texts("start: NAME & ~KEYWORD\nNAME: /[a-z]+/\nKEYWORD: \"if\" | \"for\"", {"i", "iff", "fo"},
               {"if", "for", "1"});
}

TEST(Lark, LazyAndStopEndAtTheFirstPossiblePlace) {
  expect_texts("start: text \"!\"\ntext[lazy]: /.*;/", {"a;!", ";!"}, {"a;b;!"});
  expect_texts("start: body tail\nbody[stop=\"</a>\"]: /(.|\\n)*/\ntail: \"x\"", {"hi</a>x", "</a>x"},
               {"hix", "a</a>b</a>x"});
}

TEST(Lark, MaxTokensEndsALexeme) {
  const auto g = compile_lark("start: text \"!\"\ntext[max_tokens=3]: /[a-z]+/", byte_vocabulary());
  ASSERT_TRUE(g.ok()) << g.error().to_string();
  Matcher m(g.value());
  for (char c : std::string("abc")) ASSERT_TRUE(m.accept_token(c).ok());
  EXPECT_FALSE(m.can_accept('d'));
  ASSERT_TRUE(m.accept_token('!').ok());
  EXPECT_TRUE(m.is_accepting());
}

TEST(Lark, InlineJsonSchemas) {
  expect_texts(
      "start: \"answer=\" value\nvalue: %json {\"type\": \"object\", \"properties\": {\"a\": {\"type\": "
      "\"integer\"}}, \"required\": [\"a\"],"
      " \"additionalProperties\": false}",
      {"answer={\"a\": 1}"}, {"answer={}", "answer={\"a\": \"x\"}", "{\"a\": 1}"});
}

TEST(Lark, MistakesAndRefusalsHaveALine) {
  for (const char* bad :
       {"", "start", "start: x", "start: \"a", "start: (\"a\"", "start: /a", "start: \"a\"\nstart: \"b\"",
        "start: A\nA: A \"x\"", "start: A\nA: start", "start: \"a\"~3..1", "start: \"z\"..\"a\"",
        "start: <nope>", "start: %json {", "start: A[\nA: \"a\""}) {
    const std::string e = error_of(bad);
    EXPECT_NE(e, "accepted") << bad;
    EXPECT_TRUE(e.find("line") != std::string::npos || e.find("the grammar") != std::string::npos)
        << bad << ": " << e;
  }
  for (const char* refused : {"start: t{\"a\"}\nt{x}: x", "%declare A\nstart: A", "%import other.X\nstart: X",
                              "start[temperature=1]: \"a\"", "start: /(?=a)b/", "start: /a/m"}) {
    EXPECT_NE(error_of(refused).find("not supported"), std::string::npos)
        << refused << ": " << error_of(refused);
  }
}

TEST(Lark, BombsEndQuickly) {
  const std::clock_t begin = std::clock();
  EXPECT_NE(error_of("start: " + std::string(300'000, '(')), "accepted");
  EXPECT_NE(error_of("start: " + std::string(300'000, '~') + "A\nA: \"a\""), "accepted");
  std::string doubling = "start: A0\n";
  for (int i = 0; i < 60; ++i)
    doubling += "A" + std::to_string(i) + ": A" + std::to_string(i + 1) + " A" + std::to_string(i + 1) + "\n";
  EXPECT_NE(error_of(doubling + "A60: \"a\" | \"b\"\n"), "accepted");
  EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC);
}

TEST(Lark, WalksStayInTheLanguage) {
  const auto g = compile_lark(kCalculator, byte_vocabulary());
  ASSERT_TRUE(g.ok());
  for (unsigned seed = 1; seed <= 40; ++seed) {
    const auto walk = testing::random_walk(g.value(), seed, 60);
    Matcher m(g.value());
    ASSERT_TRUE(m.accept_bytes(walk.text).ok()) << "seed " << seed << ": " << walk.text;
    ASSERT_EQ(m.is_accepting(), walk.finished);
  }
}

}  // namespace
}  // namespace deepinfer::grammar
