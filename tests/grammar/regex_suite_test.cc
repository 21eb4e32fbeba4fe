// The Rust regex crate's test data against our dialect. Each case gives two facts that do not depend on which
// match is reported first: whether the haystack contains a match, and that each reported span is itself a
// match.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "grammar/regex_parser.h"

namespace deepinfer::grammar {
namespace {

bool valid_utf8(std::string_view s) {
  std::uint32_t c = 0;
  for (std::size_t p = 0; p < s.size();)
    if (!next_utf8(s, p, c)) return false;
  return true;
}

TEST(RegexSuite, AgreesWithTheRustCrateOnEveryCaseOfTheDialect) {
  std::ifstream in("tests/data/rust-regex/cases.json");
  ASSERT_TRUE(in.good());
  const nlohmann::json cases = nlohmann::json::parse(in)["cases"];
  int compared = 0, refused = 0, outside = 0;
  std::map<std::string, int> refusals;
  for (const auto& c : cases) {
    const std::string name = c["name"], pattern = c["regex"], haystack = c["haystack"];
    RegexOptions options;
    options.unicode_classes = c.value("unicode", true);
    options.ignore_case = c.value("case-insensitive", false);
    options.search = true;
    if (!valid_utf8(pattern) ||
        name.starts_with("regex-lite/")) {  // the latter are another dialect with ASCII classes
      ++outside;
      continue;
    }
    // Patterns over bytes that are no characters: our texts are UTF-8.
    const bool bytes =
        !c.value("utf8", true) || !c.value("unicode", true) || pattern.find("(?-u") != std::string::npos;
    RegexPool pool;
    const Result<RegexId> search =
        parse_regex(pool, c.value("anchored", false) ? "^(?:" + pattern + ")" : pattern, options);
    if (!c.value("compiles", true)) {
      if (!search.ok()) ++compared;
      continue;
    }
    if (!search.ok()) {
      // Refusals name what is not supported; nothing that the dialect has may be refused.
      ASSERT_EQ(search.error().code, ErrorCode::kUnsupported)
          << name << " " << pattern << ": " << search.error().to_string();
      ++refused;
      ++refusals[search.error().message];
      continue;
    }
    if (bytes &&
        (!valid_utf8(haystack) || haystack.find_first_of("\x80\xC3\xCE\xE2\xF0") != std::string::npos ||
         pattern.find("\\x") != std::string::npos ||
         pattern.find_first_not_of(
             "\t\n\r "
             "!\"#$%&'()*+,-./"
             "0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~") !=
             std::string::npos)) {
      ++outside;
      continue;
    }
    ++compared;
    EXPECT_EQ(pool.matches(search.value(), haystack), !c["spans"].empty())
        << name << " pattern " << pattern << " haystack " << haystack;
    if (pattern.find_first_of("^$") != std::string::npos || pattern.find("\\A") != std::string::npos ||
        pattern.find("\\z") != std::string::npos)
      continue;
    options.search = false;
    const Result<RegexId> whole = parse_regex(pool, pattern, options);
    ASSERT_TRUE(whole.ok());
    for (const auto& span : c["spans"]) {
      if (!span.is_array() || !span[0].is_number()) continue;
      const auto begin = span[0].get<std::size_t>(), end = span[1].get<std::size_t>();
      const std::string text = haystack.substr(begin, end - begin);
      if (!valid_utf8(text)) continue;
      EXPECT_TRUE(pool.matches(whole.value(), text))
          << name << " pattern " << pattern << " span '" << text << "'";
    }
  }
  for (const auto& [what, count] : refusals) RecordProperty(what.substr(0, 60), count);
  EXPECT_GT(compared, 280) << "refused " << refused << ", outside the dialect " << outside;
}

}  // namespace
}  // namespace deepinfer::grammar
