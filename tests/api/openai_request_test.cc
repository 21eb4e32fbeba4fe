#include "api/openai_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deepinfer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<ApiRequest> parse(Endpoint endpoint, std::string_view text, bool strict = true) {
  Result<Json> body = parse_json(text);
  EXPECT_TRUE(body.ok()) << text;
  return parse_openai_request(endpoint, *body, {}, {.strict = strict});
}

ApiRequest parse_ok(Endpoint endpoint, std::string_view text) {
  Result<ApiRequest> request = parse(endpoint, text);
  EXPECT_TRUE(request.ok()) << text << ": " << (request.ok() ? "" : request.error().to_string());
  return request.ok() ? std::move(request).value() : ApiRequest{};
}

constexpr std::string_view kMessages = R"("messages":[{"role":"user","content":"hi"}])";

// A chat body with one more member.
std::string chat_with(std::string_view member) {
  return "{" + std::string(kMessages) + "," + std::string(member) + "}";
}

TEST(OpenaiRequest, ReadsEverySamplingField) {
  const ApiRequest r = parse_ok(Endpoint::kChat, chat_with(R"(
    "model":"m","temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.05,"repetition_penalty":1.1,
    "presence_penalty":-2,"frequency_penalty":2,"logit_bias":{"5":-100,"7":1.5},"stop":["a","b"],
    "stop_token_ids":[3,4],"ignore_eos":true,"max_completion_tokens":17,"min_tokens":2,"n":3,"seed":-1,
    "logprobs":true,"top_logprobs":4,"prompt_logprobs":1,"user":"someone","metadata":{"k":"v"})"));
  const SamplingParams& s = r.sampling;
  EXPECT_EQ(r.model, "m");
  EXPECT_EQ(s.temperature, 0.5);
  EXPECT_EQ(s.top_p, 0.9);
  EXPECT_EQ(s.top_k, 40);
  EXPECT_EQ(s.min_p, 0.05);
  EXPECT_EQ(s.repetition_penalty, 1.1);
  EXPECT_EQ(s.presence_penalty, -2);
  EXPECT_EQ(s.frequency_penalty, 2);
  EXPECT_THAT(s.logit_bias, ElementsAre(std::pair(5, -100.0f), std::pair(7, 1.5f)));
  EXPECT_THAT(s.stop, ElementsAre("a", "b"));
  EXPECT_THAT(s.stop_token_ids, ElementsAre(3, 4));
  EXPECT_TRUE(s.ignore_eos);
  EXPECT_EQ(s.max_tokens, 17);
  EXPECT_EQ(s.min_tokens, 2);
  EXPECT_EQ(s.n, 3);
  EXPECT_EQ(s.seed, ~std::uint64_t{0});
  EXPECT_EQ(s.logprobs, 4);
  EXPECT_EQ(s.prompt_logprobs, 1);
}

TEST(OpenaiRequest, DefaultsApplyWhereTheBodySaysNothingAndNullCountsAsNothing) {
  RequestDefaults defaults;
  defaults.sampling.temperature = 0.25;
  defaults.sampling.max_tokens = 9;
  defaults.chat.thinking = true;
  const Json body = *parse_json(chat_with(R"("temperature":null,"top_p":0.5)"));
  const Result<ApiRequest> r = parse_openai_request(Endpoint::kChat, body, defaults, {});
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r.value().sampling.temperature, 0.25);
  EXPECT_EQ(r.value().sampling.top_p, 0.5);
  EXPECT_EQ(r.value().sampling.max_tokens, 9);
  EXPECT_TRUE(r.value().thinking());
}

TEST(OpenaiRequest, PromptAsTextAsTokensAndAsOneElementArray) {
  EXPECT_EQ(parse_ok(Endpoint::kCompletion, R"({"prompt":"abc"})").prompt, "abc");
  EXPECT_EQ(parse_ok(Endpoint::kCompletion, R"({"prompt":["abc"]})").prompt, "abc");
  EXPECT_THAT(parse_ok(Endpoint::kCompletion, R"({"prompt":[1,2]})").prompt_tokens, ElementsAre(1, 2));
  EXPECT_THAT(parse_ok(Endpoint::kCompletion, R"({"prompt":[[1,2]]})").prompt_tokens, ElementsAre(1, 2));
  EXPECT_FALSE(parse(Endpoint::kCompletion, R"({"prompt":["a","b"]})").ok());
  EXPECT_FALSE(parse(Endpoint::kCompletion, R"({"prompt":[]})").ok());
  EXPECT_FALSE(parse(Endpoint::kCompletion, R"({"prompt":[1,"a"]})").ok());
}

// Every refusal names the place and what was expected.
TEST(OpenaiRequest, ErrorsNameThePlace) {
  struct Case {
    std::string body, where, message;
  };
  const std::vector<Case> cases = {
      {"{}", "the top level", "\"messages\" is missing"},
      {R"({"messages":[]})", "/messages", "no messages"},
      {R"({"messages":"hi"})", "/messages", "expected an array"},
      {R"({"messages":["hi"]})", "/messages/0", "expected an object"},
      {chat_with(R"("temperature":-1)"), "/temperature", "outside"},
      {chat_with(R"("temperature":"hot")"), "/temperature", "expected a number"},
      {chat_with(R"("top_p":0)"), "/top_p", "more than 0"},
      {chat_with(R"("top_p":1.5)"), "/top_p", "outside"},
      {chat_with(R"("min_p":1)"), "/min_p", "less than 1"},
      {chat_with(R"("top_k":1.5)"), "/top_k", "integer"},
      {chat_with(R"("repetition_penalty":0)"), "/repetition_penalty", "more than 0"},
      {chat_with(R"("frequency_penalty":2.1)"), "/frequency_penalty", "outside"},
      {chat_with(R"("logit_bias":{"x":1})"), "/logit_bias/x", "token id"},
      {chat_with(R"("logit_bias":{"99999999999":1})"), "/logit_bias/99999999999", "token id"},
      {chat_with(R"("logit_bias":{"1":101})"), "/logit_bias/1", "outside"},
      {chat_with(R"("stop":[1])"), "/stop/0", "expected a string"},
      {chat_with(R"("stop":"")"), "/stop", "empty"},
      {chat_with(R"("max_tokens":0)"), "/max_tokens", "outside"},
      {chat_with(R"("max_tokens":5,"max_completion_tokens":6)"), "/max_completion_tokens", "differs"},
      {chat_with(R"("max_tokens":5,"min_tokens":6)"), "/min_tokens", "more than"},
      {chat_with(R"("n":0)"), "/n", "outside"},
      {chat_with(R"("n":1000)"), "/n", "outside"},
      {chat_with(R"("seed":1.5)"), "/seed", "integer"},
      {chat_with(R"("top_logprobs":3)"), "/top_logprobs", "needs"},
      {chat_with(R"("logprobs":true,"top_logprobs":21)"), "/top_logprobs", "outside"},
      {chat_with(R"("logprobs":5)"), "/logprobs", "true or false"},
      {chat_with(R"("tools":{})"), "/tools", "expected an array"},
      {chat_with(R"("tool_choice":"required")"), "/tool_choice", "forcing a call"},
      {chat_with(R"("tool_choice":"sometimes")"), "/tool_choice", "auto"},
      {chat_with(R"("functions":[])"), "/functions", "tools"},
      {chat_with(R"("modalities":["audio"])"), "/modalities", "text"},
      {chat_with(R"("stream":true)"), "/stream", "not streamed"},
      {chat_with(R"("reasoning_effort":101)"), "/reasoning_effort", "outside"},
      {chat_with(R"("thinking":{"type":"on"})"), "/thinking/type", "enabled or disabled"},
      {chat_with(R"("chat_template_kwargs":{"enable_think":true})"), "/chat_template_kwargs/enable_think",
       "unknown"},
      {chat_with(R"("response_format":{"type":"yaml"})"), "/response_format/type", "json_object"},
      {chat_with(R"("response_format":{"type":"json_schema"})"), "/response_format", "json_schema"},
      {chat_with(R"("response_format":{"type":"json_schema","json_schema":{"schema":3}})"),
       "/response_format/json_schema/schema", "schema object"},
      {chat_with(R"("structured_outputs":{})"), "/structured_outputs", "one of"},
      {chat_with(R"("structured_outputs":{"choice":[]})"), "/structured_outputs/choice", "non-empty"},
      {chat_with(R"("structured_outputs":{"regex":"a","choice":["b"]})"), "/structured_outputs/choice",
       "second"},
      {chat_with(R"("response_format":{"type":"json_object"},"guided_regex":"a")"), "/guided_regex",
       "second"},
  };
  for (const Case& c : cases) {
    const Result<ApiRequest> r = parse(Endpoint::kChat, c.body);
    ASSERT_FALSE(r.ok()) << c.body;
    EXPECT_EQ(r.error().where, c.where) << c.body;
    EXPECT_THAT(r.error().message, HasSubstr(c.message)) << c.body;
  }
}

// Case 39: a misspelt option must not silently mean "no option".
TEST(OpenaiRequest, UnknownFieldsAreErrorsOrWarnings) {
  const std::string body = chat_with(R"("guided_jsn":{"type":"object"},"temprature":0)");
  const Result<ApiRequest> strict = parse(Endpoint::kChat, body);
  ASSERT_FALSE(strict.ok());
  EXPECT_EQ(strict.error().where, "/guided_jsn");

  const Result<ApiRequest> lenient = parse(Endpoint::kChat, body, /*strict=*/false);
  ASSERT_TRUE(lenient.ok()) << lenient.error().to_string();
  ASSERT_EQ(lenient.value().warnings.size(), 2u);
  EXPECT_THAT(lenient.value().warnings[0], HasSubstr("/guided_jsn"));
  EXPECT_THAT(lenient.value().warnings[1], HasSubstr("did you mean \"temperature\"?"));

  const Result<ApiRequest> misplaced = parse(Endpoint::kCompletion, R"({"prompt":"a","tools":[]})");
  ASSERT_FALSE(misplaced.ok());
  EXPECT_THAT(misplaced.error().message, HasSubstr("not a field of /v1/completions"));
  // The object that holds constraints stays strict even then.
  EXPECT_FALSE(parse(Endpoint::kChat, chat_with(R"("structured_outputs":{"jsn":{}})"), false).ok());
}

TEST(OpenaiRequest, ConstraintsOfEveryKind) {
  using Kind = StructuredOutput::Kind;
  const auto kind_of = [](std::string_view member) {
    return parse_ok(Endpoint::kChat, chat_with(member)).structured.kind;
  };
  EXPECT_EQ(kind_of(R"("response_format":{"type":"text"})"), Kind::kNone);
  EXPECT_EQ(kind_of(R"("response_format":{"type":"json_object"})"), Kind::kJsonObject);
  EXPECT_EQ(kind_of(R"("structured_outputs":{"json_object":true})"), Kind::kJsonObject);
  EXPECT_EQ(kind_of(R"("structured_outputs":{"regex":"a+"})"), Kind::kRegex);
  EXPECT_EQ(kind_of(R"("structured_outputs":{"grammar":"root ::= \"a\""})"), Kind::kGbnf);
  EXPECT_EQ(kind_of(R"("structured_outputs":{"grammar":"start: \"a\""})"), Kind::kLark);
  EXPECT_EQ(kind_of(R"("guided_choice":["a"])"), Kind::kChoice);
  // The order of a schema's properties is kept: answers follow it.
  const ApiRequest r =
      parse_ok(Endpoint::kChat, chat_with(R"("response_format":{"type":"json_schema","json_schema":
      {"name":"x","strict":false,"schema":{"properties":{"z":{},"a":{}},"type":"object"}}})"));
  EXPECT_EQ(r.structured.text, R"({"properties":{"z":{},"a":{}},"type":"object"})");
  EXPECT_TRUE(r.structured.best_effort);
  EXPECT_THAT(r.conversation.response_schema, HasSubstr("\"z\""));
}

TEST(OpenaiRequest, ThinkingSwitches) {
  const auto effort = [](std::string_view member) {
    const ApiRequest r = parse_ok(Endpoint::kChat, chat_with(member));
    return r.thinking() ? "on " + r.chat.effort : "off";
  };
  EXPECT_EQ(effort(R"("n":1)"), "off");
  EXPECT_EQ(effort(R"("reasoning_effort":"low")"), "on low");
  EXPECT_EQ(effort(R"("reasoning_effort":"none")"), "off");
  EXPECT_EQ(effort(R"("reasoning_effort":33)"), "on 33");
  EXPECT_EQ(effort(R"("thinking":true)"), "on ");
  EXPECT_EQ(effort(R"("thinking":{"type":"disabled"},"reasoning_effort":"max")"), "off");
  EXPECT_EQ(effort(R"("chat_template_kwargs":{"enable_thinking":true,"reasoning_effort":"low"})"), "on low");
  EXPECT_TRUE(parse_ok(Endpoint::kChat, chat_with(R"("thinking":true,"guided_regex":"a")"))
                  .structured.after_thinking);
}

// Case 16: with tool_choice none the prompt must not mention tools.
TEST(OpenaiRequest, ToolChoiceNoneLeavesToolsOut) {
  constexpr std::string_view kTools = R"("tools":[{"type":"function","function":{"name":"f"}}])";
  EXPECT_TRUE(parse_ok(Endpoint::kChat, chat_with(kTools)).conversation.tools.size() == 1);
  EXPECT_TRUE(parse_ok(Endpoint::kChat, chat_with(std::string(kTools) + R"(,"tool_choice":"auto")"))
                  .conversation.tools.size() == 1);
  EXPECT_FALSE(parse_ok(Endpoint::kChat, chat_with(std::string(kTools) + R"(,"tool_choice":"none")"))
                   .conversation.tools.size() == 1);
  EXPECT_TRUE(parse_ok(Endpoint::kChat, chat_with(R"("tools":[])")).conversation.tools.empty());
}

}  // namespace
}  // namespace deepinfer
