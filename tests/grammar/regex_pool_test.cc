// The regex algebra against brute force over a three-letter alphabet.
#include "grammar/regex_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace deepinfer::grammar {
namespace {

constexpr int kMaxLength = 5;

const std::vector<std::string>& all_strings() {
  static const std::vector<std::string> strings = [] {
    std::vector<std::string> out{""};
    for (std::size_t begin = 0, length = 0; length < kMaxLength; ++length) {
      const std::size_t end = out.size();
      for (std::size_t i = begin; i < end; ++i)
        for (char c : {'a', 'b', 'c'}) out.push_back(out[i] + c);
      begin = end;
    }
    return out;
  }();
  return strings;
}

using Language = std::set<std::string>;  // cut at kMaxLength

Language concat_languages(const Language& x, const Language& y) {
  Language out;
  for (const auto& a : x)
    for (const auto& b : y)
      if (a.size() + b.size() <= kMaxLength) out.insert(a + b);
  return out;
}

// A random expression and its language by definition, side by side.
std::pair<RegexId, Language> random_regex(RegexPool& pool, std::mt19937& rng, int depth) {
  const auto pick = [&rng](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
  switch (depth == 0 ? pick(3) : pick(10)) {
    case 0: {
      ByteSet set;
      Language l;
      for (char c : {'a', 'b', 'c'})
        if (pick(2)) set.set(static_cast<std::uint8_t>(c)), l.insert(std::string(1, c));
      return {pool.bytes(set), l};
    }
    case 1:
      return {kEpsilonRegex, {""}};
    case 2: {
      std::string s;
      for (int i = pick(3); i >= 0; --i) s.push_back(static_cast<char>('a' + pick(3)));
      return {pool.literal(s), {s}};
    }
    case 3:
    case 4: {
      auto [a, la] = random_regex(pool, rng, depth - 1);
      auto [b, lb] = random_regex(pool, rng, depth - 1);
      return {pool.concat(a, b), concat_languages(la, lb)};
    }
    case 5: {
      auto [a, la] = random_regex(pool, rng, depth - 1);
      auto [b, lb] = random_regex(pool, rng, depth - 1);
      la.insert(lb.begin(), lb.end());
      return {pool.alt({a, b}), la};
    }
    case 6: {
      auto [a, la] = random_regex(pool, rng, depth - 1);
      auto [b, lb] = random_regex(pool, rng, depth - 1);
      Language out;
      for (const auto& s : la)
        if (lb.contains(s)) out.insert(s);
      return {pool.all_of({a, b}), out};
    }
    case 7: {
      auto [a, la] = random_regex(pool, rng, depth - 1);
      Language out;
      for (const auto& s : all_strings())
        if (!la.contains(s)) out.insert(s);
      return {pool.complement(a), out};
    }
    case 8: {
      auto [a, la] = random_regex(pool, rng, depth - 1);
      const auto min = static_cast<std::uint32_t>(pick(3));
      const std::uint32_t max = pick(3) == 0 ? kUnbounded : min + static_cast<std::uint32_t>(pick(3));
      Language power{""}, out;
      for (std::uint32_t i = 0; i <= std::min<std::uint32_t>(max, min + kMaxLength); ++i) {
        if (i >= min) out.insert(power.begin(), power.end());
        power = concat_languages(power, la);
      }
      return {pool.repeat(a, min, max), out};
    }
    default: {
      auto [a, la] = random_regex(pool, rng, depth - 1);
      Language out;
      for (const auto& s : la) {
        bool shorter = false;
        for (std::size_t i = 0; i < s.size() && !shorter; ++i) shorter = la.contains(s.substr(0, i));
        if (!shorter) out.insert(s);
      }
      return {pool.shortest(a), out};
    }
  }
}

TEST(RegexPool, RandomExpressionsMatchTheirDefinitions) {
  for (unsigned seed = 1; seed <= 3000; ++seed) {
    std::mt19937 rng(seed);
    RegexPool pool;
    const auto [regex, language] = random_regex(pool, rng, 4);
    for (const auto& s : all_strings()) {
      ASSERT_EQ(pool.matches(regex, s), language.contains(s))
          << "seed " << seed << " text '" << s << "' regex " << pool.to_string(regex);
    }
    if (!language.empty()) {
      const RegexId inside = pool.all_of({regex, pool.star(pool.bytes(ByteSet::range('a', 'c')))});
      const auto example = pool.example(inside);
      ASSERT_TRUE(example.ok()) << "seed " << seed;
      ASSERT_EQ(example.value().size(), std::min_element(language.begin(), language.end(),
                                                         [](auto& a, auto& b) { return a.size() < b.size(); })
                                            ->size())
          << "seed " << seed;
    }
  }
}

TEST(RegexPool, ASteppedStateIsDeadExactlyWhenNothingFollows) {
  for (unsigned seed = 1; seed <= 1000; ++seed) {
    std::mt19937 rng(seed * 77);
    RegexPool pool;
    const RegexId regex = random_regex(pool, rng, 4).first;
    RegexId state = regex;
    for (int i = 0; i < 4 && state != kEmptyRegex; ++i) {
      const auto b = static_cast<std::uint8_t>('a' + rng() % 3);
      const RegexId next = pool.step(state, b);
      ASSERT_EQ(pool.first_bytes(state).test(b), next != kEmptyRegex) << "seed " << seed;
      if (next != kEmptyRegex) {
        const auto example = pool.example(next);
        ASSERT_TRUE(example.ok()) << "seed " << seed << ": a live state matches nothing";
      }
      state = next;
    }
  }
}

TEST(RegexPool, CharactersBecomeExactlyTheirUtf8) {
  std::mt19937 rng(5);
  for (int round = 0; round < 60; ++round) {
    CharSet set;
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t first = rng() % (round % 2 ? 0x3000u : kMaxCodePoint);
      set.add(first, std::min(kMaxCodePoint, first + static_cast<std::uint32_t>(rng() % 0x900)));
    }
    RegexPool pool;
    const RegexId regex = pool.chars(set);
    for (std::uint32_t c = 0; c <= kMaxCodePoint; c += 1 + rng() % 40) {
      if (c >= 0xD800 && c <= 0xDFFF) continue;
      std::string text;
      append_utf8(c, text);
      ASSERT_EQ(pool.matches(regex, text), set.contains(c)) << std::hex << c << " round " << round;
    }
    for (const auto& [first, last] : set.ranges()) {
      for (std::uint32_t c : {first, last}) {
        if (c >= 0xD800 && c <= 0xDFFF) continue;
        std::string text;
        append_utf8(c, text);
        ASSERT_TRUE(pool.matches(regex, text)) << std::hex << c;
      }
    }
  }
  RegexPool pool;
  EXPECT_FALSE(pool.matches(pool.any_char(), "\xED\xA0\x80")) << "a surrogate is not a character";
  EXPECT_FALSE(pool.matches(pool.any_char(), "\xC0\x80")) << "overlong form";
  EXPECT_FALSE(pool.matches(pool.any_char(), "\xF4\x90\x80\x80")) << "beyond the last code point";
  EXPECT_TRUE(pool.matches(pool.any_char(), "\xF4\x8F\xBF\xBF"));
}

TEST(RegexPool, LargeCountsAreOneNodeAndExact) {
  RegexPool pool;
  const RegexId many = pool.repeat(pool.any_char(), 3, 1'000'000);
  EXPECT_LT(pool.node_count(), 40u);
  EXPECT_FALSE(pool.matches(many, "ab"));
  EXPECT_TRUE(pool.matches(many, "abc"));
  const RegexId exact = pool.repeat(pool.byte('a'), 2000, 2000);
  EXPECT_TRUE(pool.matches(exact, std::string(2000, 'a')));
  EXPECT_FALSE(pool.matches(exact, std::string(1999, 'a')));
  EXPECT_FALSE(pool.matches(exact, std::string(2001, 'a')));
}

TEST(RegexPool, OverlappingBoundedPartsStaySmall) {
  RegexPool pool;
  // Every position may end the first part: without merging counts the derivatives would grow without bound.
  const RegexId any = pool.any_char();
  const RegexId regex = pool.concat({pool.repeat(any, 0, 300), pool.literal("x"), pool.repeat(any, 0, 300)});
  EXPECT_TRUE(pool.matches(regex, std::string(250, 'x')));
  EXPECT_LT(pool.node_count(), 3000u);
}

TEST(RegexPool, IntersectionAndContainmentAreDecided) {
  RegexPool pool;
  const RegexId word = pool.plus(pool.bytes(ByteSet::range('a', 'z')));
  const RegexId key = pool.literal("name");
  EXPECT_TRUE(pool.contains(word, key).value());
  EXPECT_FALSE(pool.contains(key, word).value());
  EXPECT_FALSE(pool.intersects(pool.minus(word, key), key).value());
  EXPECT_TRUE(
      pool.is_empty(pool.all_of({pool.repeat(word, 3, 3), pool.repeat(pool.byte('a'), 1, 2)})).value());
  EXPECT_EQ(pool.enumerate(pool.repeat(pool.bytes(ByteSet::any_of("ab")), 0, 2), 10).value(),
            (std::vector<std::string>{"", "a", "b", "aa", "ab", "ba", "bb"}));
}

TEST(RegexPool, HashesDoNotDependOnTheOrderOfConstruction) {
  RegexPool p, q;
  q.literal("something else first");
  const auto build = [](RegexPool& pool, bool flip) {
    const RegexId a = pool.literal("alpha"), b = pool.literal("beta");
    return flip ? pool.alt({b, a}) : pool.alt({a, b});
  };
  q.literal("beta");
  EXPECT_EQ(p.hash(build(p, false)), q.hash(build(q, true)));
}

TEST(RegexPool, DecimalMultiplesAgreeWithIntegerArithmetic) {
  struct Case {
    std::uint32_t modulus, scale;
  };
  for (const Case c : {Case{1, 0}, {7, 0}, {10, 0}, {360, 0}, {5, 1}, {25, 2}, {1, 2}, {3, 1}}) {
    RegexPool pool;
    const RegexId x = pool.decimal_multiple(c.modulus, c.scale);
    std::int64_t power = 1;
    for (std::uint32_t i = 0; i < c.scale; ++i) power *= 10;
    for (int thousandths = 0; thousandths < 30'000; thousandths += 1) {
      // value * 10^scale must be an integral multiple of modulus
      const bool expected = thousandths * power % 1000 == 0 && thousandths * power / 1000 % c.modulus == 0;
      std::string text =
          std::to_string(thousandths / 1000) + "." + std::to_string(1000 + thousandths % 1000).substr(1);
      ASSERT_EQ(pool.matches(x, text), expected) << text << " mod " << c.modulus << " scale " << c.scale;
      if (thousandths % 1000 == 0) {
        ASSERT_EQ(pool.matches(x, std::to_string(thousandths / 1000)), expected);
      }
    }
    EXPECT_FALSE(pool.matches(x, "0.0.0"));
    EXPECT_FALSE(pool.exceeded());
  }
}

}  // namespace
}  // namespace deepinfer::grammar
