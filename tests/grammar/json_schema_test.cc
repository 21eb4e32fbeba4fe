// What the JSON Schema compiler promises beyond the official suites: limits, options, errors that name their
// place, and the failures that users of other engines met.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <thread>

#include "grammar/schema_testing.h"

namespace deepinfer::grammar {
namespace {

using schema::PropertyOrder;
using schema::SchemaDraft;
using schema::Whitespace;

// ---- Cases that users of other engines reported.

TEST(Case36, WhiteSpaceCannotGoOnForEver) {
  // A sampler that writes white space whenever it may comes to an end all the same.
  const auto grammar =
      compile_schema(R"({"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"},
                                           "maxItems":3}},"required":["a"],"additionalProperties":false})");
  ASSERT_TRUE(grammar.ok());
  Matcher matcher(*grammar);
  std::vector<std::uint32_t> mask(byte_vocabulary()->mask_words());
  const auto allowed = [&](int b) { return (mask[static_cast<std::size_t>(b) / 32] >> (b % 32) & 1) != 0; };
  int steps = 0, longest_run = 0, run = 0;
  while (!matcher.is_complete() && steps < 3000) {
    ASSERT_TRUE(matcher.compute_mask(mask).ok());
    int pick = -1;
    for (const int b : {'\n', ' ', '\t', '\r'}) {
      if (pick < 0 && allowed(b)) pick = b;
    }
    run = pick >= 0 ? run + 1 : 0;
    longest_run = std::max(longest_run, run);
    for (const int b : {']', '}', '"', ':', '[', '{', ',', '1', 'a'}) {
      if (pick < 0 && allowed(b)) pick = b;
    }
    for (int b = 0; b < 256 && pick < 0; ++b) {
      if (allowed(b)) pick = b;
    }
    ASSERT_GE(pick, 0);
    ASSERT_TRUE(matcher.accept_token(pick).ok());
    ++steps;
  }
  EXPECT_TRUE(matcher.is_complete());
  EXPECT_LE(longest_run, 41);
}

TEST(Case37, MaxLengthHoldsAloneAndBesidePattern) {
  const auto alone = *compile_schema(R"({"type":"string","maxLength":3})");
  EXPECT_TRUE(accepts(alone, "\"abc\""));
  EXPECT_TRUE(accepts(alone, R"("\n\"\u00e9")"));  // escapes count as one character each
  EXPECT_TRUE(accepts(alone, "\"\xF0\x9F\x98\x80\xC3\xA9z\""));
  EXPECT_FALSE(accepts(alone, "\"abcd\""));
  EXPECT_FALSE(accepts(alone, "\"a\tb\""));  // raw control characters are no JSON
  const auto both = *compile_schema(R"({"type":"string","pattern":"^[a-z]+$","maxLength":3})");
  EXPECT_TRUE(accepts(both, "\"abc\""));
  EXPECT_FALSE(accepts(both, "\"abcd\""));
  EXPECT_FALSE(accepts(both, "\"a1\""));
}

TEST(Case37, RequiredWithoutPropertiesTakesAnyValueForTheName) {
  const auto grammar = *compile_schema(R"({"type":"object","required":["a"]})");
  EXPECT_FALSE(accepts(grammar, "{}"));
  EXPECT_TRUE(accepts(grammar, R"({"a": [1, {"b": null}]})"));
  EXPECT_TRUE(accepts(grammar, R"({"x": 1, "a": 2})"));
}

TEST(Case37, AdditionalMembersAreAllowedUnlessTheSchemaSaysOtherwise) {
  EXPECT_TRUE(accepts(*compile_schema(R"({"properties":{"a":{"type":"integer"}}})"), R"({"b": "x"})"));
  EXPECT_FALSE(
      accepts(*compile_schema(R"({"properties":{"a":{}},"additionalProperties":false})"), R"({"b": 1})"));
  // An additional key is never a declared one, whatever its value.
  EXPECT_FALSE(accepts(*compile_schema(R"({"properties":{"a":{"type":"integer"}}})"), R"({"a": "wrong"})"));
  EXPECT_FALSE(
      accepts(*compile_schema(R"({"properties":{"a":{"type":"integer"}}})"), R"({"\u0061": "wrong"})"));
}

TEST(Case37, SiblingKeywordsAreNeverDropped) {
  EXPECT_FALSE(
      accepts(*compile_schema(R"({"$defs":{"n":{"type":"integer"}},"$ref":"#/$defs/n","minimum":5})"), "3"));
  EXPECT_FALSE(accepts(*compile_schema(R"({"minimum":5})"), "3"));
  EXPECT_TRUE(accepts(*compile_schema(R"({"minimum":5})"), "\"3\""));
  const auto combined = *compile_schema(R"({"type":"object","properties":{"k":{"type":"string"}},
                                            "anyOf":[{"required":["k"]},{"required":["l"]}]})");
  EXPECT_FALSE(accepts(combined, "\"x\""));
  EXPECT_FALSE(accepts(combined, R"({"k": 1})"));
  EXPECT_FALSE(accepts(combined, "{}"));
  EXPECT_TRUE(accepts(combined, R"({"l": 1})"));
  EXPECT_FALSE(accepts(*compile_schema(R"({"not":{"enum":["x"]}})"), "\"x\""));
  EXPECT_TRUE(accepts(*compile_schema(R"({"pattern":"a"})"), "\"xay\""));
  EXPECT_TRUE(accepts(*compile_schema(R"({"const":{"a":1,"b":2}})"), R"({"b": 2, "a": 1})"));
}

TEST(Case37, AKeywordIsEnforcedOrItsPlaceIsNamed) {
  const std::string text =
      outcome(R"({"properties":{"a":{"type":"array","items":{"type":"string"},"uniqueItems":true}}})");
  EXPECT_TRUE(text.starts_with("unsupported #/properties/a/uniqueItems: keyword 'uniqueItems'")) << text;
  EXPECT_NE(outcome(R"({"properties":{"a/b":{"pattern":"(?<=x)y"}}})").find("#/properties/a~1b/pattern"),
            std::string::npos);
  EXPECT_NE(outcome(R"({"items":{"$ref":"http://example.com/x"}})").find("#/items/$ref"), std::string::npos);
  EXPECT_NE(outcome(R"({"items":{"$ref":"#/nowhere"}})").find("not_found #/items/$ref"), std::string::npos);
  EXPECT_NE(outcome(R"({"maxLength":"3"})").find("invalid_argument #/maxLength"), std::string::npos);
  EXPECT_NE(outcome(R"({"type":"text"})").find("invalid_argument #/type"), std::string::npos);
  EXPECT_NE(outcome(R"({"multipleOf":0.00000123457})").find("#/multipleOf"), std::string::npos);
  EXPECT_TRUE(outcome(R"({"type":"string","enum":[1]})").starts_with("invalid_argument"))
      << "no value satisfies it";
  EXPECT_TRUE(outcome("{\"a\":").starts_with("invalid_argument schema"));
}

TEST(Case38, SchemasCompileOnSeveralThreadsWhileMatchersRun) {
  const auto running = *compile_schema(R"({"type":"array","items":{"type":"string"}})");
  std::vector<std::thread> threads;
  std::vector<int> good(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const std::string name = "p" + std::to_string(t * 100 + i);
        const auto made = compile_schema("{\"type\":\"object\",\"properties\":{\"" + name +
                                         "\":{\"type\":\"integer\"}},\"required\":[\"" + name + "\"]}");
        good[static_cast<std::size_t>(t)] +=
            made.ok() && accepts(*made, "{\"" + name + "\": 4}") && accepts(running, "[\"x\", \"y\"]");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, std::vector<int>(4, 20));
}

TEST(Case39, KeywordsWithoutMeaningAreReported) {
  SchemaNotes notes;
  ASSERT_TRUE(
      compile_schema(R"({"type":"string","maxLenght":3,"x-note":1,"format":"mongo-id"})", {}, &notes).ok());
  ASSERT_EQ(notes.warnings.size(), 2u);
  EXPECT_EQ(notes.warnings[0].pointer, "#/maxLenght");
  EXPECT_EQ(notes.warnings[1].pointer, "#/format");
  EXPECT_TRUE(notes.loosened.empty());
}

// ---- Options.

TEST(JsonSchemaOptions, BestEffortListsWhatItDrops) {
  SchemaOptions options;
  options.best_effort = true;
  SchemaNotes notes;
  const auto grammar = compile_schema(
      R"x({"type":"object","properties":{"tags":{"type":"array","uniqueItems":true,"maxItems":2},
                                           "name":{"type":"string","pattern":"^(?=a)","maxLength":2}}})x",
      options, &notes);
  ASSERT_TRUE(grammar.ok()) << grammar.error().to_string();
  std::vector<std::string> dropped;
  for (const auto& note : notes.loosened) dropped.push_back(note.pointer);
  EXPECT_EQ(dropped,
            (std::vector<std::string>{"#/properties/tags/uniqueItems", "#/properties/name/pattern"}));
  EXPECT_TRUE(accepts(*grammar, R"({"tags": [1, 1]})"));
  EXPECT_FALSE(accepts(*grammar, R"({"tags": [1, 1, 1]})"));
  EXPECT_FALSE(accepts(*grammar, R"({"name": "abc"})"));
}

TEST(JsonSchemaOptions, PropertyOrder) {
  const char* schema =
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"},"c":{"type":"integer"}},
                           "required":["b"],"additionalProperties":{"type":"string"}})";
  SchemaOptions options;
  const auto free = *compile_schema(schema, options);
  options.order = PropertyOrder::kAsWritten;
  const auto written = *compile_schema(schema, options);
  for (const char* text : {R"({"a": 1, "b": 2, "c": 3, "z": "x"})", R"({"b": 2})", R"({"b": 2, "c": 3})",
                           R"({"b": 2, "z": "x", "y": ""})"}) {
    EXPECT_TRUE(accepts(free, text)) << text;
    EXPECT_TRUE(accepts(written, text)) << text;
  }
  for (const char* text : {R"({"b": 2, "a": 1})", R"({"z": "x", "b": 2})"}) {
    EXPECT_TRUE(accepts(free, text)) << text;
    EXPECT_FALSE(accepts(written, text)) << text;
  }
  for (const char* text :
       {R"({"a": 1})", R"({"b": 1, "b": 2})", R"({"a": 1, "a": 1, "b": 2})", R"({"b": 1, "z": 2})"}) {
    EXPECT_FALSE(accepts(free, text)) << text;
    EXPECT_FALSE(accepts(written, text)) << text;
  }
}

TEST(JsonSchemaOptions, CompactWhiteSpaceTakesNone) {
  SchemaOptions options;
  options.whitespace = Whitespace::kCompact;
  const auto grammar = *compile_schema(R"({"type":"array","items":{"type":"object"}})", options);
  EXPECT_TRUE(accepts(grammar, R"([{"a":1},{}])"));
  EXPECT_FALSE(accepts(grammar, R"([{"a": 1},{}])"));
}

TEST(JsonSchemaOptions, FormatsMayBeComments) {
  const char* schema = R"({"type":"string","format":"date"})";
  EXPECT_FALSE(accepts(*compile_schema(schema), "\"2023-02-29\""));
  EXPECT_TRUE(accepts(*compile_schema(schema), "\"2024-02-29\""));
  SchemaOptions options;
  options.formats = schema::FormatMode::kAnnotate;
  EXPECT_TRUE(accepts(*compile_schema(schema, options), "\"2023-02-29\""));
}

// ---- Counting without expansion, and finite domains.

TEST(JsonSchemaCounts, LargeBoundsCostNothing) {
  GrammarBuilder builder;
  ASSERT_TRUE(add_json_schema(
                  builder, R"({"type":"array","maxItems":1000000,"items":{"type":"string","maxLength":2000000,
                                           "pattern":"^[a-z]{0,900000}$"}})",
                  {})
                  .ok());
  EXPECT_LT(builder.regex().node_count(), 300u);
}

TEST(JsonSchemaCounts, UniqueItemsOverAFiniteDomain) {
  const auto grammar = *compile_schema(
      R"({"type":"array","uniqueItems":true,"minItems":2,"items":{"enum":["a","b",1,null]}})");
  EXPECT_TRUE(accepts(grammar, R"(["b", null, "a", 1])"));
  EXPECT_FALSE(accepts(grammar, R"(["b", "b"])"));
  EXPECT_FALSE(accepts(grammar, R"(["b"])"));
  EXPECT_FALSE(accepts(grammar, R"([1, 1.0])"));
}

TEST(JsonSchemaCounts, ABoundedArrayLeavesRoomForWhatItMustContain) {
  const auto grammar = *compile_schema(R"({"type":"array","maxItems":2,"contains":{"type":"string"}})");
  Matcher matcher(grammar);
  ASSERT_TRUE(matcher.accept_bytes("[1, ").ok());
  EXPECT_FALSE(Matcher(matcher).accept_bytes("2").ok());
  EXPECT_TRUE(Matcher(matcher).accept_bytes("\"x\"]").ok());
}

// ---- Hostile schemas end with an error, quickly and in bounded memory.

struct Bomb {
  const char* name;
  std::string text;
};

std::string nested(int depth, const std::string& open, const std::string& core, const std::string& close) {
  std::string out;
  for (int i = 0; i < depth; ++i) out += open;
  out += core;
  for (int i = 0; i < depth; ++i) out += close;
  return out;
}

TEST(JsonSchemaLimits, BombsEndWithinASecondAnd256MiB) {
  std::vector<Bomb> bombs;
  bombs.push_back({"self reference", R"({"$ref":"#"})"});
  bombs.push_back({"reference ring",
                   R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})"});
  bombs.push_back({"self in anyOf", R"({"anyOf":[{"type":"null"},{"$ref":"#"}]})"});
  bombs.push_back({"self in not", R"({"not":{"$ref":"#"}})"});
  bombs.push_back(
      {"member needs itself", R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})"});
  bombs.push_back({"deep nesting", nested(100'000, R"({"items":)", "{}", "}")});
  bombs.push_back({"deep anyOf", nested(200, R"({"anyOf":[)", "{}", "]}")});
  bombs.push_back({"deep not", nested(250, R"({"not":)", R"({"type":"object","required":["a"]})", "}")});
  std::string chain = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < 5000; ++i) {
    const auto name = [](int n) { return "d" + std::to_string(n); };
    chain += "\"" + name(i) + "\":{\"$ref\":\"#/$defs/" + name(i + 1) + "\"},";
  }
  bombs.push_back({"reference chain", chain + "\"d5000\":{}}}"});
  // Each definition uses the next twice: 2^40 when written out.
  std::string doubling = R"({"$ref":"#/$defs/d0","$defs":{)", widening = doubling, excluding = doubling;
  for (int i = 0; i < 40; ++i) {
    const std::string next = "{\"$ref\":\"#/$defs/d" + std::to_string(i + 1) + "\"}";
    const std::string name = "\"d" + std::to_string(i) + "\":";
    doubling += name + "{\"properties\":{\"a\":" + next + ",\"b\":" + next + "}},";
    widening += name + "{\"anyOf\":[{\"required\":[\"x" + std::to_string(i) + "\"]},{\"required\":[\"y" +
                std::to_string(i) + "\"]}],\"allOf\":[" + next + "]},";
    excluding += name + "{\"oneOf\":[{\"properties\":{\"x" + std::to_string(i) +
                 "\":{\"type\":\"string\"}}}," + next + "]},";
  }
  bombs.push_back({"doubling", doubling + "\"d40\":{\"type\":\"string\"}}}"});
  bombs.push_back({"2^40 branches", widening + "\"d40\":{}}}"});
  bombs.push_back({"nested oneOf", excluding + "\"d40\":{}}}"});
  std::string patterns = R"({"patternProperties":{)";
  for (int i = 0; i < 40; ++i)
    patterns += "\"a.{" + std::to_string(i) + "}b\":{\"minimum\":" + std::to_string(i) + "},";
  bombs.push_back({"overlapping patterns", patterns + "\"z\":{}}}"});
  std::string arms = R"({"oneOf":[)";
  for (int i = 0; i < 60; ++i)
    arms += "{\"properties\":{\"p" + std::to_string(i) + "\":{\"type\":\"integer\"}}},";
  bombs.push_back({"overlapping oneOf", arms + "{\"required\":[\"q\"]}]}"});
  bombs.push_back(
      {"regex counter product",
       R"({"pattern":"^(((a{1,1000}){1,1000}){1,1000}b|a{1,77777})*c{99999}$","not":{"pattern":"(x|y){5000}"}})"});
  bombs.push_back(
      {"remainders",
       R"({"allOf":[{"multipleOf":65521},{"multipleOf":65519},{"not":{"multipleOf":65497}}],"minimum":1})"});
  for (const Bomb& bomb : bombs) {
    rusage before{}, after{};
    getrusage(RUSAGE_THREAD, &before);
    const std::string result = outcome(bomb.text);
    getrusage(RUSAGE_THREAD, &after);
    const auto seconds = [](const rusage& u) {
      return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
             1e-6 * static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
    };
    EXPECT_LT(seconds(after) - seconds(before), 1.0) << bomb.name << ": " << result.substr(0, 200);
    EXPECT_LT(after.ru_maxrss, 256 * 1024) << bomb.name << " (KiB, the whole process so far)";
    std::printf("%-24s %6.1f ms  %s\n", bomb.name, (seconds(after) - seconds(before)) * 1e3,
                result.substr(0, 120).c_str());
  }
}

TEST(JsonSchemaLimits, RecursiveSchemasAreExact) {
  const auto tree = *compile_schema(
      R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"value":{"type":"number"},
      "children":{"type":"array","items":{"$ref":"#/$defs/node"}}},"required":["value"],"additionalProperties":false}}})");
  std::string text = R"({"value": 1})";
  for (int i = 0; i < 60; ++i)
    text = R"({"value": 2, "children": [)" + text + ", " + R"({"value": 3})" + "]}";
  EXPECT_TRUE(accepts(tree, text));
  text.insert(text.find("\"value\": 1"), "\"x\": 0, ");
  EXPECT_FALSE(accepts(tree, text));
  // A branch that could never be finished is not offered.
  const auto ends = *compile_schema(
      R"({"type":"object","properties":{"endless":{"$ref":"#/$defs/endless"},"a":{"type":"null"}},
      "additionalProperties":false,"$defs":{"endless":{"type":"object","properties":{"again":{"$ref":"#/$defs/endless"}},"required":["again"]}}})");
  Matcher matcher(ends);
  ASSERT_TRUE(matcher.accept_bytes("{\"").ok());
  EXPECT_FALSE(Matcher(matcher).accept_bytes("e").ok());
  EXPECT_TRUE(Matcher(matcher).accept_bytes("a").ok());
}

TEST(JsonSchemaDrafts, OlderDraftsReadTheirOwnWay) {
  const char* sibling =
      R"({"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"n":{"type":"integer"}},
                            "properties":{"a":{"$ref":"#/definitions/n","maximum":3}}})";
  EXPECT_TRUE(accepts(*compile_schema(sibling), R"({"a": 7})"));  // up to draft 7 a $ref hides its neighbours
  const char* exclusive =
      R"({"$schema":"http://json-schema.org/draft-04/schema#","minimum":3,"exclusiveMinimum":true})";
  EXPECT_FALSE(accepts(*compile_schema(exclusive), "3"));
  EXPECT_TRUE(accepts(*compile_schema(exclusive), "3.5"));
  EXPECT_FALSE(accepts(
      *compile_schema(R"({"$schema":"http://json-schema.org/draft-04/schema#","type":"integer"})"), "1.0"));
  EXPECT_TRUE(accepts(*compile_schema(R"({"type":"integer"})"), "1.0"));
  const char* tuple =
      R"({"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"integer"}],"additionalItems":{"type":"string"}})";
  EXPECT_TRUE(accepts(*compile_schema(tuple), R"([1, "a"])"));
  EXPECT_FALSE(accepts(*compile_schema(tuple), "[1, 2]"));
}

}  // namespace
}  // namespace deepinfer::grammar
