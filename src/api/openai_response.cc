#include "api/openai_response.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "api/version.h"

namespace deepinfer {
namespace {

// The API's stand-in for a probability of zero, which JSON cannot write.
constexpr double kNoProbability = -9999.0;

// The shortest decimal that reads back as this float, rather than the 17 digits of its double.
Json float_json(float value) {
  if (!std::isfinite(value)) return kNoProbability;
  return std::strtod(fmt::format("{}", value).c_str(), nullptr);
}

bool is_utf8(std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size();) {
    const auto lead = static_cast<unsigned char>(bytes[i]);
    const std::size_t length = lead < 0x80                   ? 1
                               : lead >= 0xF0 && lead < 0xF5 ? 4
                               : lead >= 0xE0                ? 3
                               : lead >= 0xC2                ? 2
                                                             : 0;
    if (length == 0 || lead >= 0xF5 || i + length > bytes.size()) return false;
    for (std::size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(bytes[i + k]) & 0xC0) != 0x80) return false;
    }
    i += length;
  }
  return true;
}

// A token as text; part of a character is written as "bytes:\xe4\xb8", as the API does.
std::string token_text(std::string_view bytes) {
  if (is_utf8(bytes)) return std::string(bytes);
  std::string out = "bytes:";
  for (const char c : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return out;
}

Json token_entry(TokenId id, float logprob, const PromptCodec& codec) {
  const std::string bytes = codec.token_bytes(id);
  Json list = Json::array();
  for (const char c : bytes) list.push(static_cast<int>(static_cast<unsigned char>(c)));
  Json entry;
  entry.set("token", token_text(bytes));
  entry.set("token_id", std::int64_t{id});
  entry.set("logprob", float_json(logprob));
  entry.set("bytes", std::move(list));
  return entry;
}

Json token_entry_with_top(const TokenLogprob& token, const PromptCodec& codec) {
  Json entry = token_entry(token.token, token.logprob, codec);
  Json top = Json::array();
  for (const auto& [id, logprob] : token.top) top.push(token_entry(id, logprob, codec));
  entry.set("top_logprobs", std::move(top));
  return entry;
}

Json chat_logprobs(const Answer& answer, const PromptCodec& codec) {
  Json content = Json::array();
  for (const TokenLogprob& token : answer.logprobs) content.push(token_entry_with_top(token, codec));
  Json out;
  out.set("content", std::move(content));
  return out;
}

// The older form: parallel lists. `text_offset` counts characters before the token.
Json completion_logprobs(const Answer& answer, const PromptCodec& codec) {
  Json tokens = Json::array(), values = Json::array(), tops = Json::array(), offsets = Json::array();
  std::int64_t offset = 0;
  for (const TokenLogprob& token : answer.logprobs) {
    const std::string bytes = codec.token_bytes(token.token);
    tokens.push(token_text(bytes));
    values.push(float_json(token.logprob));
    Json top = Json::object();
    for (const auto& [id, logprob] : token.top)
      top.set(token_text(codec.token_bytes(id)), float_json(logprob));
    tops.push(std::move(top));
    offsets.push(offset);
    offset += std::count_if(bytes.begin(), bytes.end(), [](char c) { return (c & 0xC0) != 0x80; });
  }
  Json out;
  out.set("tokens", std::move(tokens));
  out.set("token_logprobs", std::move(values));
  out.set("top_logprobs", std::move(tops));
  out.set("text_offset", std::move(offsets));
  return out;
}

Json tool_calls(const std::vector<ToolCall>& calls) {
  Json out = Json::array();
  for (const ToolCall& call : calls) {
    Json function;
    function.set("name", call.name);
    function.set("arguments", call.arguments);
    Json entry;
    entry.set("id", call.id);
    entry.set("type", "function");
    entry.set("function", std::move(function));
    out.push(std::move(entry));
  }
  return out;
}

Json chat_choice(const ApiRequest& request, const Answer& answer, const PromptCodec& codec,
                 std::vector<std::string>& warnings) {
  ChatAnswer parts = codec.parse_answer(request, answer.text);
  std::move(parts.warnings.begin(), parts.warnings.end(), std::back_inserter(warnings));
  Json message;
  message.set("role", "assistant");
  // A turn that only calls functions has no content.
  message.set("content",
              parts.content.empty() && !parts.calls.empty() ? Json() : Json(std::move(parts.content)));
  if (request.thinking()) message.set("reasoning_content", std::move(parts.reasoning));
  if (!parts.calls.empty()) message.set("tool_calls", tool_calls(parts.calls));
  const bool called = !parts.calls.empty() && answer.finish == FinishReason::kStop;
  Json choice;
  choice.set("index", std::int64_t{answer.index});
  choice.set("message", std::move(message));
  choice.set("logprobs", request.sampling.logprobs >= 0 ? chat_logprobs(answer, codec) : Json());
  choice.set("finish_reason", called ? "tool_calls" : finish_reason_name(answer.finish));
  return choice;
}

Json completion_choice(const ApiRequest& request, const Answer& answer, const PromptCodec& codec) {
  Json choice;
  choice.set("index", std::int64_t{answer.index});
  choice.set("text", answer.text);
  choice.set("logprobs", request.sampling.logprobs >= 0 ? completion_logprobs(answer, codec) : Json());
  choice.set("finish_reason", finish_reason_name(answer.finish));
  return choice;
}

Json usage(const Usage& counts, bool run_details) {
  Json out;
  out.set("prompt_tokens", counts.prompt_tokens);
  out.set("completion_tokens", counts.completion_tokens);
  out.set("total_tokens", counts.prompt_tokens + counts.completion_tokens);
  if (run_details) {
    Json details;
    details.set("cached_tokens", counts.cached_tokens);
    out.set("prompt_tokens_details", std::move(details));
  }
  return out;
}

Json timing(const RequestTiming& seconds) {
  Json out;
  out.set("queued", seconds.queued);
  out.set("first_token", seconds.first_token);
  out.set("total", seconds.total);
  out.set("preemptions", std::int64_t{seconds.preemptions});
  return out;
}

}  // namespace

Json openai_response(const ApiRequest& request, const RequestResult& result, const PromptCodec& codec,
                     const ResponseContext& context) {
  const bool chat = request.endpoint == Endpoint::kChat;
  std::vector<std::string> warnings = request.warnings;
  warnings.insert(warnings.end(), result.warnings.begin(), result.warnings.end());
  Json choices = Json::array();
  for (const Answer& answer : result.answers) {
    Json choice =
        chat ? chat_choice(request, answer, codec, warnings) : completion_choice(request, answer, codec);
    if (!answer.stop_text.empty()) choice.set("stop_reason", answer.stop_text);
    choices.push(std::move(choice));
  }
  Json body;
  body.set("id", context.id);
  body.set("object", chat ? "chat.completion" : "text_completion");
  body.set("created", context.created);
  body.set("model", context.model);
  body.set("choices", std::move(choices));
  if (request.sampling.prompt_logprobs >= 0) {
    Json entries = Json::array();
    entries.push(Json());  // nothing stands before the first token
    for (const TokenLogprob& token : result.prompt_logprobs) entries.push(token_entry_with_top(token, codec));
    body.set("prompt_logprobs", std::move(entries));
  }
  body.set("usage", usage(result.usage, context.run_details));
  body.set("seed", Json(result.seed));
  body.set("system_fingerprint", version_fingerprint());
  if (context.run_details) body.set("timing", timing(result.timing));
  if (!warnings.empty()) {
    Json list = Json::array();
    for (std::string& warning : warnings) list.push(std::move(warning));
    body.set("warnings", std::move(list));
  }
  return body;
}

Json openai_error(const Error& error) {
  Json out;
  out.set("code", error_code_name(error.code));
  out.set("message", error.message);
  out.set("param", error.where.empty() ? Json() : Json(error.where));
  return out;
}

Json openai_error(const RequestResult& result) {
  Json out;
  out.set("code", result.error_code);
  out.set("message", result.error);
  out.set("param", Json());
  return out;
}

}  // namespace deepinfer
