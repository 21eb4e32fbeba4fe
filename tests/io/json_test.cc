#include "io/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "io/temp_folder.h"

namespace deepinfer {
namespace {

Json parsed(std::string_view text) {
  Result<Json> json = parse_json(text);
  EXPECT_TRUE(json.ok()) << text << ": " << (json.ok() ? "" : json.error().to_string());
  return json.ok() ? *json : Json();
}

std::string parse_error(std::string_view text, const JsonLimits& limits = {}) {
  Result<Json> json = parse_json(text, limits);
  EXPECT_FALSE(json.ok()) << text;
  return json.ok() ? "" : json.error().to_string();
}

TEST(Json, KeepsKindsOrderAndIntegers) {
  const Json j =
      parsed(R"({"z":1,"a":[true,null,-5,1.5,"x",18446744073709551615,9223372036854775807,1e2],"m":{}})");
  ASSERT_TRUE(j.is_object());
  EXPECT_EQ(j.as_object()[0].first, "z");
  EXPECT_EQ(j.as_object()[1].first, "a");
  const JsonArray& a = j.find("a")->as_array();
  EXPECT_TRUE(a[0].as_bool());
  EXPECT_TRUE(a[1].is_null());
  EXPECT_EQ(a[2].as_int(), -5);
  EXPECT_EQ(a[3].as_double(), 1.5);
  EXPECT_EQ(a[4].as_string(), "x");
  EXPECT_EQ(a[5].kind(), Json::Kind::kUint);
  EXPECT_EQ(a[5].as_uint(), 18446744073709551615u);
  EXPECT_EQ(a[6].as_int(), 9223372036854775807);
  EXPECT_EQ(a[7].kind(), Json::Kind::kDouble);
  EXPECT_EQ(j.find("nothing"), nullptr);
  EXPECT_EQ(a[0].find("z"), nullptr);
}

TEST(Json, WritesWhatItReads) {
  const std::string text =
      R"({"z":1,"a":[true,null,-5,1.5,1.0,"x\"\\\n\u0001é😀",18446744073709551615],"m":{},"n":[]})";
  EXPECT_EQ(to_json_text(parsed(text)), text);
  EXPECT_EQ(to_json_text(parsed(R"({"a":[1,{"b":2}],"c":[]})"), 1),
            "{\n \"a\": [\n  1,\n  {\n   \"b\": 2\n  }\n ],\n \"c\": []\n}");
  EXPECT_EQ(to_json_text(Json(0.1)), "0.1");
  EXPECT_EQ(to_json_text(Json(1e300)), "1e+300");
  EXPECT_EQ(parsed(to_json_text(Json(1.0 / 3))).as_double(), 1.0 / 3);
  EXPECT_EQ(to_json_text(Json(std::nan(""))), "null");
}

TEST(Json, BadUtf8IsRefusedInAndReplacedOut) {
  for (const char* bad :
       {"\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "\"\xe2\x82\""})
    EXPECT_NE(parse_error(bad), "");
  EXPECT_EQ(json_quote("a\xff"
                       "b"),
            "\"a\xef\xbf\xbd"
            "b\"");
  EXPECT_EQ(json_quote("\xe2\x82"), "\"\xef\xbf\xbd\xef\xbf\xbd\"");
  EXPECT_EQ(json_quote("\xf0\x9f\x98\x80"), "\"\xf0\x9f\x98\x80\"");
}

TEST(Json, ErrorsSayWhere) {
  EXPECT_EQ(parse_error("{\n  \"a\": 1,\n  \"b\" 2\n}").substr(0, 27), "line 3, column 7 (byte 18):");
  EXPECT_EQ(parse_error("").substr(0, 26), "line 1, column 1 (byte 0):");
  EXPECT_NE(parse_error("[1,2] x"), "");
  EXPECT_NE(parse_error("{\"a\":1"), "");
  EXPECT_NE(parse_error("[1e999]"), "");
  EXPECT_NE(parse_error("[NaN]"), "");
  EXPECT_NE(parse_error("// c\n1"), "");
}

TEST(Json, RepeatedKeysAreRefusedWithTheirPlace) {
  EXPECT_EQ(parse_error(R"({"x":[{}, {"a":1,"b":2,"a":3}]})"), "/x/1: the key \"a\" appears twice");
  EXPECT_EQ(parse_error(R"({"a":1,"a":1})"), "the top level: the key \"a\" appears twice");
}

TEST(Json, LimitsHold) {
  EXPECT_EQ(parse_error("[[[1]]]", {.max_bytes = 100, .max_depth = 2}),
            "line 1, column 3 (byte 2): nested deeper than 2 levels");
  EXPECT_TRUE(parse_json("[[\"]]][[[[\"]]", {.max_bytes = 100, .max_depth = 2}).ok());
  EXPECT_NE(parse_error("[1,2,3]", {.max_bytes = 6, .max_depth = 2}), "");
  const std::string deep(1'000'000, '[');
  EXPECT_NE(parse_error(deep), "");
}

TEST(Json, EqualityIgnoresMemberOrderAndNumberKind) {
  EXPECT_EQ(parsed(R"({"a":1,"b":[1.0]})"), parsed(R"({"b":[1],"a":1})"));
  EXPECT_FALSE(parsed(R"({"a":1})") == parsed(R"({"a":1,"b":1})"));
  EXPECT_FALSE(parsed("[1,2]") == parsed("[2,1]"));
}

TEST(JsonRef, GettersNameThePointer) {
  const Json j = parsed(R"({"text/config":{"n":"five","list":[1,"x"],"f":2,"big":7}})");
  const JsonRef root(j);
  const JsonRef config = root.get("text/config").value();
  EXPECT_EQ(config.get("n")->as_int().error().to_string(),
            "/text~1config/n: expected an integer, found \"five\"");
  EXPECT_EQ(config.get("missing").error().to_string(), "/text~1config: the field \"missing\" is missing");
  EXPECT_EQ(config.get("big")->as_int(0, 5).error().to_string(), "/text~1config/big: 7 is outside 0..5");
  EXPECT_EQ(config.get("f")->as_double().value(), 2.0);
  EXPECT_EQ(config.get("list")->elements().value()[1].as_int().error().to_string(),
            "/text~1config/list/1: expected an integer, found \"x\"");
  EXPECT_EQ(config.get("list")->members().error().to_string(),
            "/text~1config/list: expected an object, found an array");
  EXPECT_FALSE(config.find("missing"));
  EXPECT_EQ(root.as_string().error().where, "the top level");
}

// The parsing suite of the JSON project's community: y_ must be read, n_ must be refused, i_ may go either
// way.
TEST(Json, ParsingSuite) {
  const std::filesystem::path folder = "tests/data/json-parsing/test_parsing";
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const std::string text = testing::read_file(entry.path().string());
    const Result<Json> json = parse_json(text);
    if (name.rfind("y_", 0) == 0) {
      // Two "y_" files repeat a key, which we refuse on purpose.
      const bool repeats = name.find("duplicated_key") != std::string::npos;
      EXPECT_EQ(json.ok(), !repeats) << name << ": " << (json.ok() ? "" : json.error().to_string());
    } else if (name.rfind("n_", 0) == 0) {
      EXPECT_FALSE(json.ok()) << name;
    }
    if (json.ok()) {
      EXPECT_EQ(*json, parsed(to_json_text(*json))) << name;
    }
    ++count;
  }
  EXPECT_GT(count, 300);
}

}  // namespace
}  // namespace deepinfer
