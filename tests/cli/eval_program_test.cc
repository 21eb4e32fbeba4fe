// deepinfer eval as a user runs it, with the bundled model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program.h"

namespace deepinfer {
namespace {

using ::testing::HasSubstr;
using testing::run;
using testing::Workspace;

TEST(EvalProgram, PerplexityOfTextsAndLines) {
  const Workspace space;
  space.write("a.txt", "The sea was calm, and the ships lay in the harbour. ");
  space.write("b.jsonl", "{\"text\": \"All happy families are alike.\"}\n\n{\"ids\": [0, 53, 376, 1772]}\n");
  ASSERT_EQ(run(space, {"eval", "ppl", "--json", space.file("a.txt"), space.file("b.jsonl")}), 0)
      << space.read("stderr");
  const Json result = parse_json(space.read("stdout")).value();
  const JsonArray& documents = result.find("documents")->as_array();
  ASSERT_EQ(documents.size(), 3u);
  EXPECT_EQ(documents[2].find("tokens")->as_int(), 3) << "ids are taken as they are; the first is context";
  const double perplexity = result.find("total")->find("perplexity")->as_double();
  EXPECT_TRUE(perplexity > 10 && perplexity < 8192) << perplexity;
  space.write("broken.jsonl", "{\"txt\": 1}\n");
  EXPECT_EQ(run(space, {"eval", "ppl", space.file("broken.jsonl")}), 1);
  EXPECT_THAT(space.read("stderr"), HasSubstr("broken.jsonl line 1"));
}

TEST(EvalProgram, DeterminismComparesBits) {
  const Workspace space;
  space.write("prompts", "The\nOnce upon a time\n");
  ASSERT_EQ(run(space, {"eval", "determinism", "--max-tokens", "4", "--json", space.file("prompts")}), 0)
      << space.read("stderr");
  const Json result = parse_json(space.read("stdout")).value();
  EXPECT_TRUE(result.find("deterministic")->as_bool());
  EXPECT_EQ(result.find("variants")->as_array().size(), 6u);
}

}  // namespace
}  // namespace deepinfer
