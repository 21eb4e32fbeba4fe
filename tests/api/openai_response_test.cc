#include "api/openai_response.h"

#include <gtest/gtest.h>

#include <cmath>

#include "api/fake_codec.h"

namespace deepinfer {
namespace {

using testing::FakeCodec;

RequestResult one_answer(std::string text) {
  RequestResult result;
  result.id = "r";
  result.seed = 18446744073709551615u;
  result.usage = {.prompt_tokens = 5, .cached_tokens = 0, .completion_tokens = 2};
  Answer answer;
  answer.text = std::move(text);
  result.answers.push_back(std::move(answer));
  return result;
}

const ResponseContext kContext{.id = "chatcmpl-1", .model = "demo", .created = 7};

TEST(OpenaiResponse, ChatCompletionObject) {
  const Json body = openai_response(ApiRequest{}, one_answer("hello"), FakeCodec{}, kContext);
  EXPECT_EQ(
      to_json_text(body),
      R"({"id":"chatcmpl-1","object":"chat.completion","created":7,"model":"demo","choices":[{"index":0,)"
      R"("message":{"role":"assistant","content":"hello"},"logprobs":null,"finish_reason":"stop"}],)"
      R"("usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7},"seed":18446744073709551615,)"
      R"("system_fingerprint":"deepinfer-0.1.0"})");
}

TEST(OpenaiResponse, ReasoningAndToolCalls) {
  ApiRequest request;
  request.chat.thinking = true;
  const Json body = openai_response(request, one_answer("why</think>CALL f"), FakeCodec{}, kContext);
  const Json& choice = body.find("choices")->as_array()[0];
  EXPECT_EQ(to_json_text(*choice.find("message")),
            R"({"role":"assistant","content":null,"reasoning_content":"why","tool_calls":[{"id":"call_0",)"
            R"("type":"function","function":{"name":"f","arguments":"{}"}}]})");
  EXPECT_EQ(*choice.find("finish_reason"), Json("tool_calls"));
}

// A call that was cut by the length limit must not look like a finished one.
TEST(OpenaiResponse, LengthStaysLengthEvenWithACall) {
  RequestResult result = one_answer("CALL f");
  result.answers[0].finish = FinishReason::kLength;
  const Json body = openai_response(ApiRequest{}, result, FakeCodec{}, kContext);
  EXPECT_EQ(*body.find("choices")->as_array()[0].find("finish_reason"), Json("length"));
}

TEST(OpenaiResponse, ChatLogprobsWithPartOfACharacter) {
  ApiRequest request;
  request.sampling.logprobs = 1;
  RequestResult result = one_answer("a");
  const TokenId part = FakeCodec::kFirstByte + 0xE4;
  result.answers[0].logprobs = {{FakeCodec::kFirstByte + 'a', -0.1f, {{part, -INFINITY}}}};
  const Json body = openai_response(request, result, FakeCodec{}, kContext);
  EXPECT_EQ(to_json_text(*body.find("choices")->as_array()[0].find("logprobs")),
            R"({"content":[{"token":"a","token_id":113,"logprob":-0.1,"bytes":[97],"top_logprobs":)"
            R"([{"token":"bytes:\\xe4","token_id":244,"logprob":-9999.0,"bytes":[228]}]}]})");
}

TEST(OpenaiResponse, CompletionObjectWithLogprobsAndPromptLogprobs) {
  ApiRequest request;
  request.endpoint = Endpoint::kCompletion;
  request.sampling.logprobs = 0;
  request.sampling.prompt_logprobs = 0;
  RequestResult result = one_answer("ab");
  result.answers[0].stop_text = "END";
  result.answers[0].logprobs = {{FakeCodec::kFirstByte + 'a', -0.5f, {}},
                                {FakeCodec::kFirstByte + 'b', -1.5f, {}}};
  result.prompt_logprobs = {{FakeCodec::kFirstByte + 'p', -2.0f, {}}};
  const Json body = openai_response(request, result, FakeCodec{}, kContext);
  EXPECT_EQ(*body.find("object"), Json("text_completion"));
  EXPECT_EQ(to_json_text(*body.find("choices")),
            R"([{"index":0,"text":"ab","logprobs":{"tokens":["a","b"],"token_logprobs":[-0.5,-1.5],)"
            R"("top_logprobs":[{},{}],"text_offset":[0,1]},"finish_reason":"stop","stop_reason":"END"}])");
  EXPECT_EQ(to_json_text(*body.find("prompt_logprobs")),
            R"([null,{"token":"p","token_id":128,"logprob":-2.0,"bytes":[112],"top_logprobs":[]}])");
}

TEST(OpenaiResponse, WarningsOfRequestAndResultAreListed) {
  ApiRequest request;
  request.warnings = {"one"};
  RequestResult result = one_answer("x");
  result.warnings = {"two"};
  const Json body = openai_response(request, result, FakeCodec{}, kContext);
  EXPECT_EQ(to_json_text(*body.find("warnings")), R"(["one","two"])");
}

TEST(OpenaiResponse, ErrorObject) {
  EXPECT_EQ(to_json_text(openai_error(invalid_argument("bad", "/n"))),
            R"({"code":"invalid_argument","message":"bad","param":"/n"})");
}

}  // namespace
}  // namespace deepinfer
