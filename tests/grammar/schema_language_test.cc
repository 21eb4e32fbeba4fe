// Number ranges and strings as regular expressions, against plain comparison.
#include <gtest/gtest.h>

#include <random>

#include "grammar/schema/number_language.h"
#include "grammar/schema/string_algebra.h"

namespace deepinfer::schema {
namespace {

using Integral = NumberBranch::Integral;

Decimal decimal(const std::string& text) {
  const auto made = parse_decimal(text);
  EXPECT_TRUE(made.has_value()) << text;
  return made.value_or(Decimal{});
}

bool holds(const NumberBranch& b, const Decimal& v) {
  if (b.integral == Integral::kInteger && !v.is_integer()) return false;
  if (b.integral == Integral::kFraction && v.is_integer()) return false;
  if (b.low && (compare(v, *b.low) < 0 || (b.low_open && compare(v, *b.low) == 0))) return false;
  if (b.high && (compare(v, *b.high) > 0 || (b.high_open && compare(v, *b.high) == 0))) return false;
  for (const Decimal& m : b.multiples) {
    if (!is_multiple_of(v, m).value()) return false;
  }
  for (const Decimal& m : b.non_multiples) {
    if (is_multiple_of(v, m).value()) return false;
  }
  for (const Decimal& x : b.excluded) {
    if (x == v) return false;
  }
  return true;
}

TEST(NumberLanguage, RangesAndMultiplesAgreeWithDecimalComparison) {
  const auto seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 rng(seed);
  const auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
  const auto random_text = [&](int places) {
    std::string text = std::to_string(pick(pick(3) == 0 ? 12 : 1300));
    if (places > 0) {
      text += '.';
      for (int i = 0; i < places; ++i) text += static_cast<char>('0' + pick(10));
    }
    return (pick(2) != 0 ? "-" : "") + text;
  };
  for (int round = 0; round < 400; ++round) {
    NumberBranch branch;
    if (pick(4) != 0) branch.low = decimal(random_text(pick(3)));
    if (pick(4) != 0) branch.high = decimal(random_text(pick(3)));
    if (branch.low && branch.high && compare(*branch.low, *branch.high) > 0)
      std::swap(branch.low, branch.high);
    branch.low_open = branch.low && pick(2) != 0;
    branch.high_open = branch.high && pick(2) != 0;
    branch.integral = static_cast<Integral>(pick(3));
    if (pick(3) == 0)
      branch.multiples.push_back(decimal(
          std::vector<std::string>{"7", "0.25", "12", "0.1", "30"}[static_cast<std::size_t>(pick(5))]));
    if (pick(5) == 0)
      branch.non_multiples.push_back(
          decimal(std::vector<std::string>{"2", "0.5", "9"}[static_cast<std::size_t>(pick(3))]));
    if (pick(5) == 0) branch.excluded.push_back(decimal(random_text(pick(2))));
    if (!tidy(branch)) continue;
    grammar::RegexPool pool;
    const auto language = number_language(pool, branch, {});
    ASSERT_TRUE(language.ok()) << language.error().to_string();
    for (int i = 0; i < 150; ++i) {
      std::string text = random_text(pick(4));
      if (i % 3 == 0 && branch.low) text = branch.low->to_string();
      if (i % 7 == 0 && branch.high) text = branch.high->to_string();
      if (i % 5 == 0) text = (pick(2) != 0 ? "-0" : "0") + std::string(pick(2) != 0 ? ".00" : "");
      ASSERT_EQ(pool.matches(*language, text), holds(branch, decimal(text)))
          << text << " low " << (branch.low ? branch.low->to_string() : "-")
          << (branch.low_open ? " open" : "") << " high " << (branch.high ? branch.high->to_string() : "-")
          << (branch.high_open ? " open" : "") << " integral " << static_cast<int>(branch.integral)
          << " multiples " << branch.multiples.size() << branch.non_multiples.size();
    }
    EXPECT_FALSE(pool.matches(*language, "01"));
    EXPECT_FALSE(pool.matches(*language, "1."));
    EXPECT_FALSE(pool.matches(*language, ""));
  }
}

TEST(NumberLanguage, BoundsBeyond64BitsAreExact) {
  NumberBranch branch;
  branch.low = decimal("98249283749234923498293171823948729348710298301928331");
  branch.low_open = true;
  grammar::RegexPool pool;
  const auto language = *number_language(pool, branch, {});
  EXPECT_FALSE(pool.matches(language, "98249283749234923498293171823948729348710298301928331"));
  EXPECT_TRUE(pool.matches(language, "98249283749234923498293171823948729348710298301928331.5"));
  EXPECT_TRUE(pool.matches(language, "98249283749234923498293171823948729348710298301928332"));
}

TEST(Decimals, CompareAsTheyAreWritten) {
  EXPECT_EQ(compare(decimal("1e1"), decimal("10.0")), 0);
  EXPECT_EQ(compare(decimal("-0"), decimal("0.000")), 0);
  EXPECT_LT(compare(decimal("-3"), decimal("-2.999999999999999999999")), 0);
  EXPECT_LT(compare(decimal("9.99e2"), decimal("1000")), 0);
  EXPECT_FALSE(parse_decimal("1e99999").has_value());
  EXPECT_EQ(decimal("12.500e-1").to_string(), "1.25");
  EXPECT_EQ(is_multiple_of(decimal("4.02"), decimal("0.01")), true);
  EXPECT_EQ(is_multiple_of(decimal("0.00751"), decimal("0.0001")), false);
}

TEST(StringAlgebra, EveryCharacterHasOnePlainSpelling) {
  grammar::RegexPool pool;
  StringAlgebra strings(pool);
  EXPECT_EQ(StringAlgebra::spell("a\"\\/\n\x01\xC3\xA9"), "a\\\"\\\\/\\n\\u0001\xC3\xA9");
  const auto quote = *strings.pattern("^[\"x]$");
  EXPECT_TRUE(pool.matches(quote, "\\\""));
  EXPECT_TRUE(pool.matches(quote, "x"));
  EXPECT_FALSE(pool.matches(quote, "\""));
  const auto outside = strings.complement(quote);
  EXPECT_FALSE(pool.matches(outside, "\\\""));
  EXPECT_TRUE(pool.matches(outside, "\\\\"));
  EXPECT_FALSE(pool.matches(outside, "\"")) << "not the inside of a JSON string";
  EXPECT_TRUE(pool.matches(outside, ""));
}

TEST(StringAlgebra, PatternsAreSearched) {
  grammar::RegexPool pool;
  StringAlgebra strings(pool);
  EXPECT_TRUE(pool.matches(*strings.pattern("b+"), "abbc"));
  EXPECT_TRUE(pool.matches(*strings.pattern("^a|c$"), "xxc"));
  EXPECT_FALSE(pool.matches(*strings.pattern("^(a|c)$"), "xxc"));
}

}  // namespace
}  // namespace deepinfer::schema
