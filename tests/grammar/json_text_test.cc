// JSON itself: the y_ texts of JSONTestSuite are accepted and its n_ texts are not, byte by byte.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "grammar/byte_vocabulary.h"
#include "grammar/json_schema.h"
#include "grammar/matcher.h"

namespace deepinfer::grammar {
namespace {

namespace fs = std::filesystem;

GrammarPtr json_grammar(JsonText what, schema::Whitespace whitespace) {
  SchemaOptions options;
  options.whitespace = whitespace;
  options.max_integer_digits = options.max_fraction_digits = 0;
  GrammarBuilder builder;
  const auto symbol = add_json_text(builder, what, options);
  EXPECT_TRUE(symbol.ok());
  builder.set_start(*symbol);
  auto made = compile(std::move(builder), byte_vocabulary());
  EXPECT_TRUE(made.ok());
  return *made;
}

bool accepts(const GrammarPtr& grammar, std::string_view text) {
  Matcher matcher(grammar);
  return matcher.accept_bytes(text).ok() && matcher.is_accepting();
}

TEST(JsonText, JsonTestSuiteIsExact) {
  const GrammarPtr value = json_grammar(JsonText::kValue, schema::Whitespace::kAny);
  const GrammarPtr object = json_grammar(JsonText::kObject, schema::Whitespace::kAny);
  int good = 0, bad = 0;
  for (const auto& entry : fs::directory_iterator("tests/data/json-parsing/test_parsing")) {
    const std::string name = entry.path().filename().string();
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    const bool is_object = first != std::string::npos && text[first] == '{';
    if (name.starts_with("y_")) {
      EXPECT_TRUE(accepts(value, text)) << name;
      EXPECT_EQ(accepts(object, text), is_object) << name;
      ++good;
    } else if (name.starts_with("n_")) {
      EXPECT_FALSE(accepts(value, text)) << name;
      EXPECT_FALSE(accepts(object, text)) << name;
      ++bad;
    }
  }
  EXPECT_GE(good, 90);
  EXPECT_GE(bad, 180);
}

TEST(JsonText, DefaultWhiteSpaceIsBounded) {
  const GrammarPtr object = json_grammar(JsonText::kObject, schema::Whitespace::kBounded);
  EXPECT_TRUE(accepts(object, R"({"a": 1, "b": [true, {"c": null}]})"));
  EXPECT_TRUE(accepts(object, "{\n  \"a\": 1,\n  \"b\": []\n}"));
  EXPECT_TRUE(accepts(object, "{}"));
  EXPECT_FALSE(accepts(object, " {}"));
  EXPECT_FALSE(accepts(object, "{} "));
  EXPECT_FALSE(accepts(object, R"({"a":  1})"));
  EXPECT_FALSE(accepts(object, R"({"a" : 1})"));
  EXPECT_FALSE(accepts(object, "{\n\n\"a\": 1}"));
  EXPECT_FALSE(accepts(object, "{\n" + std::string(41, ' ') + "\"a\": 1}"));
}

}  // namespace
}  // namespace deepinfer::grammar
