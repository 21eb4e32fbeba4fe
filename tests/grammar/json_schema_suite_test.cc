// The official suites through the matcher: every instance is written as JSON and pushed in byte by byte. No
// instance that is invalid may get through. Whatever else differs from the suite (a schema that is refused, a
// valid instance that is not accepted) is in json_schema_ratchet.jsonl with its reason, and nothing else is:
// the file only shrinks.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "grammar/byte_vocabulary.h"
#include "grammar/json_schema.h"
#include "grammar/matcher.h"
#include "grammar/schema_suite.h"

namespace deepinfer::grammar {
namespace {

constexpr const char* kRatchet = "tests/grammar/json_schema_ratchet.jsonl";

/// "refused: ..." for a schema, "rejected" for an instance; by case name.
using Differences = std::map<std::string, std::string>;

Differences read_ratchet(const std::string& suite) {
  Differences out;
  std::ifstream in(kRatchet);
  EXPECT_TRUE(in.good()) << kRatchet;
  for (std::string line; std::getline(in, line);) {
    const auto entry = nlohmann::json::parse(line);
    EXPECT_FALSE(entry.at("reason").get<std::string>().empty()) << line;
    if (entry.at("suite") == suite) out[entry.at("case")] = entry.at("outcome");
  }
  return out;
}

struct Summary {
  std::size_t schemas = 0, whole = 0, tests = 0;
};

// `directory` under the suite; `name` tells apart two runs over one directory.
Summary run_suite(const std::string& directory, const std::string& name, SchemaOptions options) {
  options.documents = schema::suite_documents();
  options.whitespace = schema::Whitespace::kCompact;
  const VocabularyPtr vocabulary = byte_vocabulary();
  Differences found;
  Summary sum;
  for (const schema::SuiteGroup& group : schema::load_suite(directory)) {
    ++sum.schemas;
    GrammarBuilder builder;
    const auto symbol = add_json_schema(builder, group.schema, options);
    if (!symbol.ok()) {
      // A schema without values is refused; that loses nothing.
      const bool loses =
          std::any_of(group.tests.begin(), group.tests.end(), [](const auto& t) { return t.valid; });
      if (loses) {
        found[group.name()] = "refused";
        EXPECT_FALSE(symbol.error().where.empty()) << group.name() << ": " << symbol.error().to_string();
      } else {
        ++sum.whole;
      }
      sum.tests += group.tests.size();
      continue;
    }
    builder.set_start(*symbol);
    const auto compiled = compile(std::move(builder), vocabulary);
    if (!compiled.ok()) {
      ADD_FAILURE() << group.name() << ": " << compiled.error().to_string();
      continue;
    }
    bool whole = true;
    for (const schema::SuiteTest& test : group.tests) {
      ++sum.tests;
      Matcher matcher(*compiled);
      const Status taken = matcher.accept_bytes(test.instance);
      const bool accepted = taken.ok() && matcher.is_accepting();
      if (accepted == test.valid) continue;
      if (accepted) {
        ADD_FAILURE() << "accepted although invalid: " << group.name() << " / " << test.description
                      << "\n  schema " << group.schema << "\n  value " << test.instance;
      } else {
        found[group.name() + " / " + test.description] = "rejected";
        whole = false;
      }
    }
    sum.whole += whole ? 1 : 0;
  }
  const Differences expected = read_ratchet(name);
  for (const auto& [what, outcome] : found) {
    const auto known = expected.find(what);
    EXPECT_TRUE(known != expected.end() && known->second == outcome)
        << "not in the ratchet: "
        << nlohmann::json({{"suite", name}, {"case", what}, {"outcome", outcome}, {"reason", ""}});
  }
  for (const auto& [what, outcome] : expected) {
    EXPECT_TRUE(found.contains(what)) << "now right, to be taken out of the ratchet: " << what;
  }
  std::printf("%s: %zu of %zu schemas wholly right, %zu instances\n", name.c_str(), sum.whole, sum.schemas,
              sum.tests);
  return sum;
}

TEST(JsonSchemaSuite, Draft202012Required) {
  SchemaOptions options;
  options.formats = schema::FormatMode::kAnnotate;  // as the suite's required part has it
  const Summary sum = run_suite("draft2020-12", "draft2020-12", options);
  EXPECT_GE(sum.whole * 100, sum.schemas * 95);
}

TEST(JsonSchemaSuite, Draft7Required) {
  SchemaOptions options;
  options.formats = schema::FormatMode::kAnnotate;
  options.default_draft = schema::SchemaDraft::kDraft7;
  const Summary sum = run_suite("draft7", "draft7", options);
  EXPECT_GE(sum.whole * 100, sum.schemas * 95);
}

TEST(JsonSchemaSuite, Draft202012Formats) {
  const Summary sum = run_suite("draft2020-12/optional/format", "draft2020-12 formats", SchemaOptions());
  EXPECT_GE(sum.whole * 100, sum.schemas * 50);
}

// Schemas as people write them, with instances; the file may not be redistributed.
TEST(JsonSchemaSuite, RealWorldSchemas) {
  const char* extra = std::getenv("DEEPINFER_EXTRA_DATA");
  if (extra == nullptr) GTEST_SKIP() << "needs DEEPINFER_EXTRA_DATA";
  std::ifstream in(std::string(extra) + "/testsuites/maskbench-sample.jsonl");
  if (!in.good()) GTEST_SKIP() << "no testsuites/maskbench-sample.jsonl there";
  std::size_t total = 0, taken = 0;
  for (std::string line; std::getline(in, line); ++total) {
    const auto entry = nlohmann::ordered_json::parse(line);
    const auto compiled = compile_json_schema(entry.at("schema").dump(), byte_vocabulary());
    if (!compiled.ok()) continue;
    ++taken;
    for (const auto& test : entry.at("tests")) {
      Matcher matcher(*compiled);
      const bool accepted = matcher.accept_bytes(test.at("data").dump()).ok() && matcher.is_accepting();
      EXPECT_EQ(accepted, test.at("valid").get<bool>())
          << entry.at("name") << ": " << test.at("data").dump().substr(0, 200);
    }
  }
  EXPECT_GE(taken * 100, total * 92) << taken << " of " << total;
  std::printf("%zu of %zu real schemas taken\n", taken, total);
}

}  // namespace
}  // namespace deepinfer::grammar
