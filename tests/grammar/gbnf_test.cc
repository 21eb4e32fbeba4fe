#include <gtest/gtest.h>

#include <cctype>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "grammar/front_ends.h"
#include "grammar/matcher.h"
#include "grammar/walk_vocabulary.h"

namespace deepinfer::grammar {
namespace {

using testing::byte_vocabulary;
using testing::random_walk;
using testing::whole_match;

std::string read(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in.good()) << path;
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

GrammarPtr gbnf(std::string_view text) {
  auto r = compile_gbnf(text, byte_vocabulary());
  EXPECT_TRUE(r.ok()) << text << ": " << (r.ok() ? "" : r.error().to_string());
  return r.ok() ? std::move(r).value() : nullptr;
}

std::string error_of(std::string_view text) {
  auto r = compile_gbnf(text, byte_vocabulary());
  return r.ok() ? "accepted" : r.error().to_string();
}

void expect_texts(std::string_view grammar, std::initializer_list<const char*> good,
                  std::initializer_list<const char*> bad) {
  const GrammarPtr g = gbnf(grammar);
  ASSERT_NE(g, nullptr);
  for (const char* t : good) EXPECT_TRUE(whole_match(g, t)) << grammar << " refuses '" << t << "'";
  for (const char* t : bad) EXPECT_FALSE(whole_match(g, t)) << grammar << " accepts '" << t << "'";
}

TEST(Gbnf, OperatorsAndGroups) {
  expect_texts("root ::= \"a\"* \"ab\"", {"ab", "aab", "aaaab"}, {"", "a", "b", "aba"});
  expect_texts("root ::= (\"ab\" | \"a\") \"bc\"", {"abc", "abbc"}, {"ab", "bc"});
  expect_texts("root ::= \"ab\"{2,3}", {"abab", "ababab"}, {"ab", "abababab", "aab"});
  expect_texts("root ::= \"a\"{2,} | [x-z^-]", {"aa", "aaaa", "x", "^", "-"}, {"a", "w"});
  expect_texts("root ::= \"a\"{3} \"b\"?", {"aaa", "aaab"}, {"aa", "aaaa"});
  expect_texts("root ::= [^a-c\\n]+", {"xyz", "é中"}, {"", "xa", "x\n"});
  expect_texts("root ::= ( # comment\n  \"a\"\n  \"b\" |\n \"c\" )\n", {"ab", "c"}, {"a"});
  expect_texts("root ::= a |\n  b\na ::= \"x\"\nb ::= \"y\" # end", {"x", "y"}, {"xy"});
  expect_texts("root ::= \"\\x41\\u00e9\\U0001F600\\t\\\"\\\\\\[\\]\"", {"Aé😀\t\"\\[]"}, {"A"});
  expect_texts("root ::= .{2}", {"ab", "é中"}, {"a", "abc"});
  expect_texts("root ::= \"\" | \"a\"", {"", "a"}, {"b"});
}

TEST(Gbnf, RecursionOfEveryKind) {
  expect_texts("root ::= root \"a\" | \"b\"", {"b", "baaa"}, {"", "a", "ab"});
  expect_texts("root ::= \"a\" root | \"b\"", {"b", "aaab"}, {"", "a", "ba"});
  expect_texts("root ::= \"(\" root \")\" root | \"\"", {"", "()", "(())()"}, {"(", ")", "(()"});
  expect_texts("root ::= a\na ::= b \"x\" | \"x\"\nb ::= a \"y\"", {"x", "xyx", "xyxyx"}, {"xy", "yx"});
  expect_texts("root ::= (\"a\"*)* root?", {"", "aaa"}, {"b"});
  expect_texts("root ::= root root | \"a\"", {"a", "aaaaaa"}, {"", "b"});
}

TEST(Gbnf, RepetitionsHaveNoMagicLimit) {
  const GrammarPtr g = gbnf("root ::= item{2000}\nitem ::= \"a\" | \"(\" item \")\"");
  std::string text(2000, 'a');
  EXPECT_TRUE(whole_match(g, text));
  EXPECT_FALSE(whole_match(g, text + "a"));
  EXPECT_FALSE(whole_match(g, text.substr(1)));
  EXPECT_TRUE(whole_match(g, "((a))" + text.substr(1)));
  EXPECT_TRUE(whole_match(gbnf("root ::= [a-z]{0,100000}"), std::string(100000, 'q')));
}

TEST(Gbnf, TokensAreMatchedAsTokens) {
  const VocabularyPtr v = byte_vocabulary();
  const TokenId think = v->find_special("<think>"), end = v->find_special("</think>");
  ASSERT_GE(think, 0);
  const GrammarPtr g = gbnf("root ::= <think> inner </think> .*\ninner ::= !</think>*");
  Matcher m(g);
  EXPECT_FALSE(m.fork().accept_bytes("<think>").ok()) << "the spelling of a control token is not the token";
  ASSERT_TRUE(m.accept_token(think).ok());
  EXPECT_FALSE(m.is_accepting());
  ASSERT_TRUE(m.accept_token('x').ok());
  ASSERT_TRUE(m.accept_token(think).ok());
  std::vector<std::uint32_t> mask(v->mask_words());
  ASSERT_TRUE(m.compute_mask(mask).ok());
  for (std::size_t id = 0; id < v->token_count(); ++id)
    ASSERT_EQ((mask[id / 32] >> (id % 32)) & 1, m.can_accept(static_cast<TokenId>(id)) ? 1u : 0u) << id;
  ASSERT_TRUE(m.accept_token(end).ok());
  EXPECT_TRUE(m.is_accepting());
  EXPECT_FALSE(m.can_accept(think));
  ASSERT_TRUE(m.accept_bytes("done").ok());
  EXPECT_NE(error_of("root ::= <nosuchtoken>").find("nosuchtoken"), std::string::npos);
}

TEST(Gbnf, MistakesAreErrorsWithALine) {
  for (const char* bad :
       {"", "root", "root ::=\n\nroot ::= \"a\"", "root ::= \"a", "root ::= [a", "root ::= (\"a\"",
        "root ::= \"a\")", "root ::= b", "root ::= \"a\"{,}", "root ::= \"a\"{5,0}",
        "root ::= \"a\"{99999999999}", "root ::= \"\\q\"", "root ::= *", "root ::= [z-a]", "a ::= \"x\"",
        "root ::= \"a\" ::= b", "root ::= \"\\ud800\""}) {
    const std::string e = error_of(bad);
    EXPECT_NE(e, "accepted") << bad;
    EXPECT_TRUE(e.find("line") != std::string::npos || e.find("the grammar") != std::string::npos)
        << bad << ": " << e;
  }
  EXPECT_NE(error_of("root ::= x y\nx ::= \"1\"").find("'y'"), std::string::npos);
  EXPECT_NE(error_of("root ::= root \"a\"").find("matches nothing"), std::string::npos);
}

TEST(Gbnf, BombsEndInAnErrorOrQuickly) {
  const std::clock_t begin = std::clock();
  EXPECT_NE(error_of("root ::= " + std::string(200'000, '(') + "\"a\"" + std::string(200'000, ')')),
            "accepted");
  error_of("root ::= (((((([^x]*){0,99}){0,99}){0,99}){0,99}){0,99}){0,99}");
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 20'000; ++i)
    chain += "r" + std::to_string(i) + " ::= \"(\" r" + std::to_string(i + 1) + " \")\" | \"a\"\n";
  chain += "r20000 ::= \"b\"\n";
  const auto r = compile_gbnf(chain, byte_vocabulary());
  ASSERT_TRUE(r.ok()) << r.error().to_string();
  EXPECT_TRUE(whole_match(r.value(), "((a))"));
  // Every rule doubles the text of the one before: 2^200 characters, never expanded.
  std::string doubling = "root ::= d0\n";
  for (int i = 0; i < 200; ++i)
    doubling +=
        "d" + std::to_string(i) + " ::= d" + std::to_string(i + 1) + " d" + std::to_string(i + 1) + "\n";
  doubling += "d200 ::= \"a\" | \"b\"\n";
  const auto d = compile_gbnf(doubling, byte_vocabulary());
  ASSERT_TRUE(d.ok()) << d.error().to_string();
  Matcher m(d.value());
  EXPECT_TRUE(m.accept_bytes("abab").ok());
  EXPECT_FALSE(m.accept_bytes("c").ok());
  EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC);
}

// Valid JSON whatever the size of its numbers: nlohmann refuses what a double cannot hold.
bool is_json(const std::string& text) {
  std::string small;
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    small.push_back(text[i]);
    if (inside && text[i] == '\\' && i + 1 < text.size()) {
      small.push_back(text[++i]);
      continue;
    }
    if (text[i] == '"') inside = !inside;
    if (inside || (text[i] != 'e' && text[i] != 'E') || i + 1 >= text.size()) continue;
    std::size_t j = i + 1;
    if (text[j] == '+' || text[j] == '-') ++j;
    if (j >= text.size() || !std::isdigit(static_cast<unsigned char>(text[j]))) continue;  // true, false
    while (j < text.size() && std::isdigit(static_cast<unsigned char>(text[j]))) ++j;
    small.push_back('1');
    i = j - 1;
  }
  return nlohmann::json::accept(small);
}

TEST(Gbnf, SuiteFilesParseAndWhatTheyGenerateMatches) {
  for (const char* name : {"arithmetic", "c", "chess", "english", "japanese", "json", "json_arr", "list"}) {
    const std::string text = read(std::string("tests/data/llamacpp-grammars/") + name + ".gbnf");
    const GrammarPtr g = gbnf(text);
    ASSERT_NE(g, nullptr) << name;
    int finished = 0;
    for (unsigned seed = 1; seed <= 40; ++seed) {
      const testing::Walk walk = random_walk(g, seed, 300);
      Matcher m(g);
      EXPECT_TRUE(m.accept_bytes(walk.text).ok()) << name << " seed " << seed << ": " << walk.text;
      EXPECT_EQ(m.is_accepting(), walk.finished) << name << " seed " << seed;
      if (!walk.finished) continue;
      ++finished;
      if (std::string(name).starts_with("json")) {
        EXPECT_TRUE(is_json(walk.text)) << name << " seed " << seed << ": " << walk.text;
      }
    }
    EXPECT_GT(finished, std::string(name) == "c" ? 0 : 5) << name;
  }
}

}  // namespace
}  // namespace deepinfer::grammar
