// Request JSON -> conversation: what is read, and that every mistake is named with its place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/json.h"
#include "tokenizer/chat.h"

namespace deepinfer {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::string& body) {
  const Json json = parse_json(body).value();
  const auto chat = chat_from_json(JsonRef(json));
  if (chat.ok()) return "none";
  EXPECT_EQ(chat.error().code, ErrorCode::kInvalidArgument) << body;
  return chat.error().to_string();
}

TEST(ChatJson, ReadsEveryPartOfAConversation) {
  const Json json = parse_json(R"({"messages": [
      {"role": "developer", "content": "be kind"},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": null, "reasoning_content": "hm",
       "tool_calls": [{"id": "1", "type": "function", "function": {"name": "ns::f", "arguments": "{\"x\":1}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "done"}],
      "tools": [{"type": "function", "function": {"name": "ns::f", "parameters": {"type": "object"}}}],
      "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}})")
                        .value();
  const Conversation chat = chat_from_json(JsonRef(json)).value();
  ASSERT_EQ(chat.messages.size(), 4u);
  EXPECT_EQ(chat.messages[0].role, ChatRole::kSystem);
  EXPECT_EQ(chat.messages[1].content.size(), 2u);
  EXPECT_EQ(chat.messages[2].reasoning, "hm");
  EXPECT_EQ(chat.messages[2].tool_calls.at(0).name, "ns::f");
  EXPECT_EQ(chat.messages[2].tool_calls.at(0).arguments, "{\"x\":1}");
  EXPECT_EQ(chat.messages[3].tool_call_id, "1");
  EXPECT_EQ(chat.tools.at(0).json, R"({"name": "ns::f", "parameters": {"type": "object"}})");
  EXPECT_EQ(chat.response_schema, R"({"type": "object"})");
  EXPECT_EQ(chat_from_json(JsonRef(json), {.developer_as_system = false})->messages[0].role,
            ChatRole::kDeveloper);
}

TEST(ChatJson, EveryMistakeIsNamedWithItsPlace) {
  const auto with = [](const std::string& message) {
    return error_of(R"({"messages": [{"role": "user", "content": "a"}, )" + message + "]}");
  };
  EXPECT_EQ(with(R"({"role": "user", "content": "b"})"), "none");
  EXPECT_THAT(error_of("{}"), HasSubstr("messages"));
  EXPECT_THAT(error_of("[]"), HasSubstr("object"));
  EXPECT_THAT(error_of(R"({"messages": []})"), HasSubstr("/messages: there are no messages"));
  EXPECT_THAT(error_of(R"({"messages": "hi"})"), HasSubstr("/messages"));
  EXPECT_THAT(error_of(R"({"messages": [5]})"), HasSubstr("/messages/0"));
  EXPECT_THAT(with(R"({"content": "b"})"), HasSubstr("role"));
  EXPECT_THAT(with(R"({"role": 5, "content": "b"})"), HasSubstr("/messages/1/role"));
  EXPECT_THAT(with(R"({"role": "robot", "content": "b"})"),
              HasSubstr("/messages/1/role: unknown role 'robot'"));
  EXPECT_THAT(with(R"({"role": "user"})"), HasSubstr("content"));
  EXPECT_THAT(with(R"({"role": "user", "content": null})"), HasSubstr("/messages/1/content"));
  EXPECT_THAT(with(R"({"role": "user", "content": 5})"),
              HasSubstr("/messages/1/content: expected a text or an array of parts, found an integer"));
  EXPECT_THAT(with(R"({"role": "user", "content": ["x"]})"), HasSubstr("/messages/1/content/0"));
  EXPECT_THAT(with(R"({"role": "user", "content": [{"type": "audio"}]})"),
              HasSubstr("'audio' is not supported"));
  EXPECT_THAT(with(R"({"role": "user", "content": [{"type": "text"}]})"), HasSubstr("text"));
  EXPECT_THAT(with(R"({"role": "system", "content": [{"type": "image_url", "image_url": "x"}]})"),
              HasSubstr("pictures"));
  EXPECT_THAT(with(R"({"role": "user", "content": [{"type": "image_url", "image_url": {"url": ""}}]})"),
              HasSubstr("empty"));
  EXPECT_THAT(with(R"({"role": "user", "content": "b", "tool_calls": []})"),
              HasSubstr("/messages/1/tool_calls"));
  EXPECT_THAT(with(R"({"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]})"),
              HasSubstr("name"));
  EXPECT_THAT(with(R"({"role": "assistant", "tool_calls": [{"function": {"name": "a\"b"}}]})"),
              HasSubstr("/function/name"));
  EXPECT_THAT(with(R"({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]})"),
              HasSubstr("not JSON"));
  EXPECT_THAT(
      with(R"({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]})"),
      HasSubstr("must be a JSON object, found an array"));
  EXPECT_THAT(with(R"({"role": "assistant", "reasoning_content": 3})"), HasSubstr("/reasoning_content"));
  const std::string ok = R"({"messages": [{"role": "user", "content": "a"}], )";
  EXPECT_THAT(error_of(ok + R"("tools": {}})"), HasSubstr("/tools"));
  EXPECT_THAT(error_of(ok + R"("tools": [{"type": "retrieval"}]})"),
              HasSubstr("'retrieval' is not supported"));
  EXPECT_THAT(error_of(ok + R"("tools": [{"type": "function", "function": {}}]})"), HasSubstr("name"));
  EXPECT_THAT(error_of(ok + R"("response_format": {"type": "json_schema"}})"), HasSubstr("json_schema"));
  EXPECT_THAT(error_of(ok + R"("response_format": {"type": "json_schema", "json_schema": {"schema": 5}}})"),
              HasSubstr("/schema"));
}

TEST(ChatJson, ReadsThinkingOptions) {
  const auto options_of = [](const char* body) {
    const Json json = parse_json(body).value();
    return chat_options_from_json(JsonRef(json));
  };
  EXPECT_FALSE(options_of("{}")->thinking);
  EXPECT_TRUE(options_of(R"({"thinking": true})")->thinking);
  EXPECT_TRUE(options_of(R"({"thinking": {"type": "enabled"}})")->thinking);
  EXPECT_FALSE(options_of(R"({"reasoning_effort": "none"})")->thinking);
  EXPECT_EQ(options_of(R"({"reasoning_effort": 42})")->effort, "42");
  EXPECT_TRUE(options_of(R"({"reasoning_effort": "max"})")->thinking);
  EXPECT_FALSE(options_of(R"({"thinking": false, "reasoning_effort": "max"})")->thinking);
  EXPECT_FALSE(options_of(R"({"drop_thinking": false})")->drop_thinking);
  EXPECT_FALSE(options_of(R"({"thinking": {"type": "maybe"}})").ok());
  EXPECT_FALSE(options_of(R"({"reasoning_effort": 101})").ok());
}

}  // namespace
}  // namespace deepinfer
