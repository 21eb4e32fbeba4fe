// The program as a user runs it, with the bundled model.
#include "cli/program.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>
#include <thread>

namespace deepinfer {
namespace {

using ::testing::HasSubstr;
using testing::run;
using testing::start;
using testing::wait_for;
using testing::Workspace;

std::map<std::string, Json> by_id(const Workspace& space, const std::string& name) {
  std::map<std::string, Json> out;
  for (const std::string& text : space.lines(name)) {
    Result<Json> line = parse_json(text);
    EXPECT_TRUE(line.ok()) << text;
    if (!line.ok() || !line->find("custom_id")->is_string()) continue;
    EXPECT_TRUE(out.emplace(line->find("custom_id")->as_string(), *line).second) << text;
  }
  return out;
}

// The body of a successful result.
const Json& body_of(const Json& line) {
  return *line.find("response")->find("body");
}
const Json& choice_of(const Json& line) {
  return body_of(line).find("choices")->as_array().at(0);
}

TEST(Program, AnswersTheExampleBatch) {
  const Workspace space;
  ASSERT_EQ(run(space, {"run", "-i", "examples/batch.jsonl", "-o", space.file("out"), "--ordered"}), 0)
      << space.read("stderr");
  const auto results = by_id(space, "out");
  const auto text = [&](const char* id) {
    return choice_of(results.at(id)).find("message")->find("content")->as_string();
  };
  EXPECT_EQ(text("sum"), "56");
  EXPECT_EQ(text("spell"), "v-i-o-l-i-n");
  EXPECT_EQ(text("days"), "Saturday");
  // What a schema asks for is what comes.
  const Result<Json> person = parse_json(text("schema"));
  ASSERT_TRUE(person.ok());
  EXPECT_TRUE(person->find("city")->is_string());
  EXPECT_TRUE(person->find("age")->is_int());
  const Json& call = choice_of(results.at("weather-call"));
  EXPECT_EQ(*call.find("finish_reason"), Json("tool_calls"));
  EXPECT_THAT(to_json_text(*call.find("message")->find("tool_calls")), HasSubstr("get_weather"));
  EXPECT_FALSE(
      choice_of(results.at("sum-thinking")).find("message")->find("reasoning_content")->as_string().empty());
  EXPECT_EQ(body_of(results.at("two-starts")).find("choices")->as_array().size(), 2u);
  EXPECT_THAT(space.read("stderr"), HasSubstr("0 failed"));

  ASSERT_EQ(run(space, {"show", "examples/batch.jsonl", space.file("out")}), 0);
  EXPECT_THAT(space.read("stdout"), HasSubstr("v-i-o-l-i-n"));
}

std::string small_batch(int count) {
  std::string out;
  for (int i = 1; i <= count; ++i) {
    switch (i % 10) {
      case 3:
        out += fmt::format("{{\"id\":\"line-{}\",\"prompt\":\"a\",\"max_tokens\":3\n", i);
        break;  // cut off
      case 7:
        out += fmt::format("{{\"id\":\"line-{}\",\"prompt\":\"a\",\"top_p\":2}}\n", i);
        break;
      case 5:
        out += fmt::format(
            "{{\"id\":\"line-{}\",\"messages\":[{{\"role\":\"user\",\"content\":\"What is {} + "
            "2?\"}}],\"max_tokens\":4}}\n",
            i, i);
        break;
      default:
        out += fmt::format("{{\"id\":\"line-{}\",\"prompt\":\"Chapter {}\",\"max_tokens\":{}}}\n", i, i,
                           2 + i % 7);
    }
  }
  return out;
}

// Case 20 with the real engine.
TEST(Program, AKilledBatchIsResumedToTheSameResults) {
  const Workspace space;
  space.write("in", small_batch(60));
  ASSERT_EQ(run(space, {"run", "-i", space.file("in"), "-o", space.file("expected")}), 3)
      << space.read("stderr");
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  int code = 128 + SIGKILL;
  for (int i = 0; i < 6 && code == 128 + SIGKILL; ++i) {
    const pid_t pid = start(
        space, {"run", "-i", space.file("in"), "-o", space.file("out"), "--resume", "--sequences", "4"});
    // Kill it when some more results are there.
    const std::size_t wanted = space.lines("out").size() + 1 + random() % 12;
    for (int wait = 0;
         wait < 3000 && space.lines("out").size() < wanted && ::waitpid(pid, nullptr, WNOHANG) == 0; ++wait) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (::kill(pid, SIGKILL) == 0) code = wait_for(pid);
    const std::string text = space.read("out");
    ASSERT_TRUE(text.empty() || text.back() == '\n');
  }
  ASSERT_EQ(run(space, {"run", "-i", space.file("in"), "-o", space.file("out"), "--resume"}), 3)
      << space.read("stderr");
  EXPECT_EQ(space.sorted_lines("out"), space.sorted_lines("expected"));
}

TEST(Program, SigintKeepsWhatIsDoneAndExitsWithFour) {
  const Workspace space;
  std::string input;
  for (int i = 0; i < 40; ++i)
    input += fmt::format("{{\"prompt\":\"Number {}\",\"max_tokens\":400,\"ignore_eos\":true}}\n", i);
  space.write("in", "{\"prompt\":\"a\",\"max_tokens\":1}\n" + input);
  const pid_t pid = start(space, {"run", "-i", space.file("in"), "-o", space.file("out")});
  for (int wait = 0; wait < 3000 && space.lines("out").empty(); ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::kill(pid, SIGINT);
  EXPECT_EQ(wait_for(pid), 4);
  EXPECT_THAT(space.read("stderr"), HasSubstr("--resume"));
  EXPECT_GE(space.lines("out").size(), 1u);
  EXPECT_LT(space.lines("out").size(), 41u);
}

// Case 43: the seed in the request counts and is echoed.
TEST(Program, SeedsAreObeyedAndEchoed) {
  const Workspace space;
  const std::string body = R"(,"prompt":"Once upon a time","max_tokens":12,"temperature":1.2)";
  space.write("in", "{\"id\":\"a\"" + body + ",\"seed\":5}\n{\"id\":\"b\"" + body +
                        ",\"seed\":5}\n{\"id\":\"c\"" + body + ",\"seed\":6}\n{\"id\":\"d\"" + body + "}\n");
  ASSERT_EQ(run(space, {"run", "-i", space.file("in"), "-o", space.file("out")}), 0) << space.read("stderr");
  const auto results = by_id(space, "out");
  const auto text = [&](const char* id) { return choice_of(results.at(id)).find("text")->as_string(); };
  EXPECT_EQ(text("a"), text("b"));
  EXPECT_NE(text("a"), text("c"));
  EXPECT_EQ(*body_of(results.at("a")).find("seed"), Json(5));
  // A request without a seed gets one, and the one that is echoed reproduces it.
  const std::string echoed = to_json_text(*body_of(results.at("d")).find("seed"));
  space.write("in2", "{\"id\":\"e\"" + body + ",\"seed\":" + echoed + "}\n");
  ASSERT_EQ(run(space, {"run", "-i", space.file("in2"), "-o", space.file("out2")}), 0)
      << space.read("stderr");
  EXPECT_EQ(choice_of(by_id(space, "out2").at("e")).find("text")->as_string(), text("d"));
}

TEST(Program, ReadsStdinAndWritesStdout) {
  const Workspace space;
  space.write("stdin", "{\"prompt\":\"a\",\"max_tokens\":2}\n{\"prompt\":3}\n");
  EXPECT_EQ(run(space, {"run", "-i", "-", "-o", "-", "--ordered"}), 3);
  const auto lines = space.lines("stdout");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(parse_json(lines[0])->find("error")->is_null());
  EXPECT_EQ(*parse_json(lines[1])->find("error")->find("line"), Json(2));
}

// Case 53: what does not fit is refused before loading, with what would.
TEST(Program, TooLargeACacheIsRefusedWithTheSizeThatFits) {
  const Workspace space;
  space.write("in", "{\"prompt\":\"a\"}\n");
  EXPECT_EQ(
      run(space, {"run", "-i", space.file("in"), "-o", space.file("out"), "--cache-tokens", "100000000000"}),
      1);
  EXPECT_THAT(space.read("stderr"), HasSubstr("--cache-tokens"));
  EXPECT_THAT(space.read("stderr"), HasSubstr("fits"));
}

TEST(Program, WrongUsageAndMissingModelsSayWhatToDo) {
  const Workspace space;
  EXPECT_EQ(run(space, {"run"}), 2);
  EXPECT_EQ(run(space, {"nonsense"}), 2);
  EXPECT_EQ(run(space, {"complete", "a", "--temperature", "-1"}), 2);
  EXPECT_EQ(run(space, {"complete", "a", "-m", "/no/such/folder"}), 1);
  EXPECT_THAT(space.read("stderr"), HasSubstr("no such model folder"));
  EXPECT_EQ(run(space, {"version"}), 0);
  EXPECT_THAT(space.read("stdout"), HasSubstr("deepinfer 0."));
}

TEST(Program, ChatRemembersTheConversationAndForgetsOnReset) {
  const Workspace space;
  space.write(
      "stdin",
      "Which day comes after Monday?\n/reset\n/thinking on\nWhat is (3 + 4) * 5?\n/quit\nnever read\n");
  ASSERT_EQ(run(space, {"chat", "--temperature", "0"}), 0) << space.read("stderr");
  const auto lines = space.lines("stdout");
  ASSERT_GE(lines.size(), 2u);
  EXPECT_EQ(lines[0], "Tuesday");
  EXPECT_THAT(lines[1], HasSubstr("First add 3 and 4"));
}

TEST(Program, CompleteContinuesGreedilyLikeTheGoldenText) {
  const Workspace space;
  ASSERT_EQ(
      run(space, {"complete", "The king said to his daughter", "--temperature", "0", "--max-tokens", "4"}),
      0);
  EXPECT_EQ(space.read("stdout"), ", and said,\n");
}

TEST(Program, DoctorFindsTheBundledModelWhole) {
  const Workspace space;
  ASSERT_EQ(run(space, {"doctor"}), 0) << space.read("stderr");
  EXPECT_THAT(space.read("stdout"), HasSubstr("fingerprint"));
  EXPECT_EQ(run(space, {"doctor", "-m", space.file("nothing")}), 1);
}

}  // namespace
}  // namespace deepinfer
