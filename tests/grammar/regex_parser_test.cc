#include "grammar/regex_parser.h"

#include <gtest/gtest.h>

namespace deepinfer::grammar {
namespace {

bool whole(std::string_view pattern, std::string_view text, RegexOptions options = {}) {
  RegexPool pool;
  const Result<RegexId> r = parse_regex(pool, pattern, options);
  EXPECT_TRUE(r.ok()) << pattern << ": " << (r.ok() ? "" : r.error().to_string());
  return r.ok() && pool.matches(r.value(), text);
}

bool found(std::string_view pattern, std::string_view text) {
  return whole(pattern, text, {.syntax = RegexSyntax::kEcma, .search = true});
}

std::string error_of(std::string_view pattern, RegexSyntax syntax = RegexSyntax::kGeneral) {
  RegexPool pool;
  const Result<RegexId> r = parse_regex(pool, pattern, {.syntax = syntax});
  return r.ok() ? "accepted" : r.error().to_string();
}

TEST(RegexParser, AnchorsAreExactWhereverTheyStand) {
  EXPECT_TRUE(found("a", "xay"));
  EXPECT_TRUE(found("^a", "ay"));
  EXPECT_FALSE(found("^a", "xa"));
  EXPECT_TRUE(found("a$", "xa"));
  EXPECT_FALSE(found("a$", "ax"));
  EXPECT_TRUE(found("^$", ""));
  EXPECT_FALSE(found("^$", "a"));
  EXPECT_TRUE(found("^a|b$", "ax"));
  EXPECT_TRUE(found("^a|b$", "xb"));
  EXPECT_FALSE(found("^a|b$", "xax"));
  EXPECT_TRUE(found("(^|,)x(,|$)", "a,x,b"));
  EXPECT_TRUE(found("(^|,)x(,|$)", "x"));
  EXPECT_FALSE(found("(^|,)x(,|$)", "ax"));
  EXPECT_FALSE(found("a^b", "ab"));
  EXPECT_TRUE(found("^(\\w+(,|$))+$", "ab,cd"));
  EXPECT_FALSE(found("^(\\w+(,|$))+$", "ab,cd-"));
  EXPECT_TRUE(found("(^a)?b", "xb"));
  EXPECT_TRUE(found("^^a$$", "a"));
  EXPECT_FALSE(found("(^a){2}", "aa"));
  EXPECT_TRUE(found("(^){3}a", "ab"));
}

TEST(RegexParser, ClassesEscapesAndCounts) {
  EXPECT_TRUE(whole("[a-c]{2,3}", "abc"));
  EXPECT_FALSE(whole("[a-c]{2,3}", "a"));
  EXPECT_TRUE(whole("[^\\d\\s]+", "héé"));
  EXPECT_TRUE(whole("\\u0041\\x42\\u{43}", "ABC"));
  EXPECT_TRUE(whole("\\ud83d\\ude00", "\xF0\x9F\x98\x80"));
  EXPECT_TRUE(whole("\\p{Lu}\\P{Lu}", "Éa"));
  EXPECT_TRUE(whole("\\p{Script=Greek}+", "αβγ"));
  EXPECT_TRUE(whole("(?i)straße", "STRASSE") || whole("(?i)strabe", "STRABE"));
  EXPECT_TRUE(whole("(?i:a)b", "Ab"));
  EXPECT_FALSE(whole("(?i:a)b", "AB"));
  EXPECT_TRUE(whole("(?x) a b # comment\n c", "abc"));
  EXPECT_TRUE(whole("[a-z&&[^aeiou]]+", "xyz"));
  EXPECT_FALSE(whole("[a-z&&[^aeiou]]+", "xyze"));
  EXPECT_TRUE(whole("[[:alpha:]_]+", "ab_"));
  EXPECT_TRUE(whole("a??b+?c*?", "abb"));
  EXPECT_TRUE(whole(".", "é"));
  EXPECT_FALSE(whole(".", "\n"));
  EXPECT_TRUE(whole("(?s).", "\n"));
  EXPECT_TRUE(whole("x{0}y", "y"));
  EXPECT_TRUE(whole("[]a]+", "]a"));
  EXPECT_TRUE(whole("[a-]+", "a-"));
  EXPECT_TRUE(found("^[[]$", "["));
  EXPECT_TRUE(found("^a{,2}$", "a{,2}"));
  EXPECT_TRUE(found("^x{a}$", "x{a}"));
  EXPECT_TRUE(found("^[\\w-.]+$", "a-.b"));
  EXPECT_TRUE(found("^\\-\\_\\/$", "-_/"));
}

TEST(RegexParser, WhatCannotBeDoneIsRefusedByName) {
  EXPECT_NE(error_of("(a)\\1").find("back-reference"), std::string::npos);
  EXPECT_NE(error_of("(?=a)").find("look-ahead"), std::string::npos);
  EXPECT_NE(error_of("(?<!a)").find("look-behind"), std::string::npos);
  EXPECT_NE(error_of("\\bword").find("word boundary"), std::string::npos);
  EXPECT_NE(error_of("a++").find("possessive"), std::string::npos);
  EXPECT_NE(error_of("(?>a)").find("atomic"), std::string::npos);
  EXPECT_NE(error_of("(?m)^a").find("multi-line"), std::string::npos);
}

TEST(RegexParser, MalformedPatternsAreErrorsWithAPlace) {
  for (const char* bad : {"(", ")", "a)", "[", "[a", "[z-a]", "*a", "a{5,0}", "\\", "\\x1", "\\q", "(?P<n",
                          "a{99999999999}", "\\p{Nonsense}", "(?", "\xFF", "[[:alpha:]", "(?z)a"}) {
    EXPECT_NE(error_of(bad), "accepted") << bad;
    EXPECT_NE(error_of(bad).find("offset"), std::string::npos) << bad << ": " << error_of(bad);
  }
}

TEST(RegexParser, DeepNestingEndsInAnError) {
  const std::string deep = std::string(100'000, '(') + "a" + std::string(100'000, ')');
  EXPECT_NE(error_of(deep).find("nested"), std::string::npos);
  const std::string classes = std::string(100'000, '[');
  EXPECT_NE(error_of(classes), "accepted");
  std::string repeats = "a";
  for (int i = 0; i < 2000; ++i) repeats += "{0,3}";
  EXPECT_EQ(error_of(repeats), "accepted");
  RegexPool pool;
  const auto bomb =
      parse_regex(pool, "((((((a{0,1000}){0,1000}){0,1000}){0,1000}){0,1000}){0,1000}){0,1000}");
  ASSERT_TRUE(bomb.ok()) << bomb.error().to_string();
  EXPECT_TRUE(pool.matches(bomb.value(), std::string(300, 'a')));
}

}  // namespace
}  // namespace deepinfer::grammar
