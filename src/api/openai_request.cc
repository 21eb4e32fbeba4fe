#include "api/openai_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "api/json_fields.h"
#include "api/structured_fields.h"

namespace deepinfer {
namespace {

// Limits with their reasons. Answers of one prompt share its cache; more than this is another request.
constexpr std::int64_t kMaxAnswers = 128;
// The chosen token and 20 others: what the OpenAI API allows, and what keeps a result line readable.
constexpr std::int64_t kMaxLogprobs = 20;
// Stop strings are searched for after every token.
constexpr std::size_t kMaxStops = 64;
constexpr std::size_t kMaxBias = 4096;
constexpr std::int64_t kMaxTokenId = std::numeric_limits<TokenId>::max();
constexpr double kMaxDouble = std::numeric_limits<double>::max();

constexpr std::array<std::string_view, 46> kKnownFields = {"model",
                                                           "messages",
                                                           "prompt",
                                                           "tools",
                                                           "tool_choice",
                                                           "parallel_tool_calls",
                                                           "response_format",
                                                           "structured_outputs",
                                                           "temperature",
                                                           "top_p",
                                                           "top_k",
                                                           "min_p",
                                                           "repetition_penalty",
                                                           "presence_penalty",
                                                           "frequency_penalty",
                                                           "logit_bias",
                                                           "stop",
                                                           "stop_token_ids",
                                                           "ignore_eos",
                                                           "max_tokens",
                                                           "max_completion_tokens",
                                                           "min_tokens",
                                                           "n",
                                                           "seed",
                                                           "logprobs",
                                                           "top_logprobs",
                                                           "prompt_logprobs",
                                                           "reasoning_effort",
                                                           "chat_template_kwargs",
                                                           "thinking",
                                                           "stream",
                                                           "stream_options",
                                                           "user",
                                                           "metadata",
                                                           "echo",
                                                           "best_of",
                                                           "suffix",
                                                           "modalities",
                                                           "service_tier",
                                                           "store",
                                                           "functions",
                                                           "function_call",
                                                           "web_search_options",
                                                           "audio",
                                                           "drop_thinking",
                                                           "continue_final_message"};

constexpr std::array<std::string_view, 4> kChatSwitches = {"reasoning_effort", "thinking", "drop_thinking",
                                                           "continue_final_message"};

// Fields that label or route a request and cannot change its answer.
constexpr std::array<std::string_view, 8> kLabels = {"user",         "metadata",          "store",
                                                     "service_tier", "safety_identifier", "prompt_cache_key",
                                                     "prediction",   "priority"};

// Reads one request; a class only so that the parts share the reader, the options and the result.
class Parser {
 public:
  Parser(Endpoint endpoint, const Json& body, const RequestDefaults& defaults, const ParseOptions& options)
      : root_(body), body_(root_), options_(options) {
    request_.endpoint = endpoint;
    request_.sampling = defaults.sampling;
    request_.chat = defaults.chat;
  }

  Result<ApiRequest> run() {
    DI_TRY(body_.string("model", request_.model));
    DI_TRY(chat() ? conversation() : prompt());
    if (chat()) DI_TRY(thinking());
    DI_TRY(sampling());
    DI_TRY(lengths());
    DI_TRY(stops());
    DI_TRY(logit_bias());
    DI_TRY(logprobs());
    DI_TRY(stream());
    DI_TRY(read_structured_fields(body_, request_.structured));
    request_.structured.after_thinking = request_.thinking();
    DI_TRY(chat() ? refused_chat_fields() : refused_completion_fields());
    for (const std::string_view name : kLabels) body_.ignore(name);
    DI_TRY(unknown_fields(body_));
    return std::move(request_);
  }

 private:
  bool chat() const { return request_.endpoint == Endpoint::kChat; }

  // The messages and tools themselves are read by the chat format's own reader.
  Status conversation() {
    for (const std::string_view name : {"messages", "tools", "response_format"}) body_.ignore(name);
    bool parallel = true;
    DI_TRY(body_.boolean("parallel_tool_calls", parallel));
    if (const auto choice = body_.find("tool_choice")) {
      const Json& value = choice->value();
      if (value.is_object() || value == Json("required")) {
        return unsupported("only \"auto\" and \"none\" are available: forcing a call is not",
                           choice->pointer());
      }
      if (value != Json("auto") && value != Json("none")) {
        return FieldReader::wrong_type(*choice, "\"auto\" or \"none\"");
      }
    }
    DI_ASSIGN(request_.conversation, chat_from_json(root_));
    if (!request_.conversation.tools.empty() && !parallel) {
      return unsupported("the model decides how many calls it makes; leave it out or set it to true",
                         body_.pointer("parallel_tool_calls"));
    }
    return {};
  }

  Status prompt() {
    constexpr std::string_view kExpected = "a string or a non-empty array of token ids";
    const auto field = body_.find("prompt");
    if (!field) return body_.error_at("prompt", fmt::format("missing; expected {}", kExpected));
    JsonRef prompt = *field;
    // The API also allows [prompt] for one prompt.
    if (prompt.value().is_array() && !prompt.value().as_array().empty() &&
        !prompt.value().as_array().front().is_number()) {
      DI_ASSIGN(const auto prompts, prompt.elements());
      if (prompts.size() > 1) {
        return unsupported("one prompt a request; send the others as requests of their own",
                           prompt.pointer());
      }
      prompt = prompts.front();
    }
    if (prompt.value().is_string()) {
      request_.prompt = prompt.value().as_string();
      return {};
    }
    if (!prompt.value().is_array() || prompt.value().as_array().empty()) {
      return FieldReader::wrong_type(prompt, kExpected);
    }
    request_.prompt_is_tokens = true;
    return token_ids(prompt, request_.prompt_tokens);
  }

  // An array of token ids; whether the vocabulary has them is checked where the vocabulary is known.
  static Status token_ids(const JsonRef& array, std::vector<TokenId>& out) {
    DI_ASSIGN(const auto elements, array.elements());
    out.reserve(elements.size());
    for (const JsonRef& element : elements) {
      DI_ASSIGN(const std::int64_t id, element.as_int(0, kMaxTokenId));
      out.push_back(static_cast<TokenId>(id));
    }
    return {};
  }

  // What chat_template_kwargs says goes before the body's own members.
  Status thinking() {
    for (const std::string_view name : kChatSwitches) body_.ignore(name);
    DI_ASSIGN(request_.chat, chat_options_from_json(root_, request_.chat));
    const auto value = body_.find("chat_template_kwargs");
    if (!value) return {};
    if (!value->value().is_object()) return FieldReader::wrong_type(*value, "an object");
    FieldReader fields(*value);
    for (const std::string_view name : kChatSwitches) fields.ignore(name);
    DI_ASSIGN(request_.chat, chat_options_from_json(*value, request_.chat));
    DI_TRY(fields.boolean("enable_thinking", request_.chat.thinking));
    return unknown_fields(fields);
  }

  Status sampling() {
    SamplingParams& s = request_.sampling;
    DI_TRY(body_.number("temperature", 0, kMaxDouble, s.temperature));
    DI_TRY(body_.number("top_p", 0, 1, s.top_p));
    if (s.top_p <= 0) return body_.error_at("top_p", "must be more than 0");
    DI_TRY(body_.number("min_p", 0, 1, s.min_p));
    if (s.min_p >= 1) return body_.error_at("min_p", "must be less than 1");
    DI_TRY(body_.number("repetition_penalty", 0, kMaxDouble, s.repetition_penalty));
    if (s.repetition_penalty <= 0) return body_.error_at("repetition_penalty", "must be more than 0");
    DI_TRY(body_.number("presence_penalty", -2, 2, s.presence_penalty));
    DI_TRY(body_.number("frequency_penalty", -2, 2, s.frequency_penalty));
    DI_TRY(body_.integer("top_k", -1, INT64_MAX, s.top_k));
    s.top_k = std::max<std::int64_t>(s.top_k, 0);  // -1 and 0: all
    DI_TRY(body_.boolean("ignore_eos", s.ignore_eos));
    std::int64_t n = s.n;
    DI_TRY(body_.integer("n", 1, kMaxAnswers, n));
    s.n = static_cast<std::int32_t>(n);
    if (const auto seed = body_.find("seed")) {
      if (seed->value().kind() == Json::Kind::kUint) {
        s.seed = seed->value().as_uint();
      } else {
        DI_ASSIGN(const std::int64_t value, seed->as_int());
        s.seed = static_cast<std::uint64_t>(value);
      }
    }
    return {};
  }

  Status lengths() {
    SamplingParams& s = request_.sampling;
    std::int64_t from_old_name = -1;
    std::int64_t from_new_name = -1;
    DI_TRY(body_.integer("max_tokens", 1, INT64_MAX, from_old_name));
    DI_TRY(body_.integer("max_completion_tokens", 1, INT64_MAX, from_new_name));
    if (from_old_name > 0 && from_new_name > 0 && from_old_name != from_new_name) {
      return body_.error_at("max_completion_tokens", "differs from max_tokens; give one of them");
    }
    if (const std::int64_t given = std::max(from_old_name, from_new_name); given > 0) s.max_tokens = given;
    DI_TRY(body_.integer("min_tokens", 0, INT64_MAX, s.min_tokens));
    if (s.max_tokens >= 0 && s.min_tokens > s.max_tokens) {
      return body_.error_at("min_tokens", fmt::format("{} is more than the {} tokens the answer may have",
                                                      s.min_tokens, s.max_tokens));
    }
    return {};
  }

  Status stops() {
    SamplingParams& s = request_.sampling;
    if (const auto stop = body_.find("stop")) {
      s.stop.clear();
      if (stop->value().is_string()) {
        s.stop.push_back(stop->value().as_string());
      } else if (stop->value().is_array() && stop->value().as_array().size() <= kMaxStops) {
        DI_ASSIGN(const auto elements, stop->elements());
        for (const JsonRef& element : elements) {
          DI_ASSIGN(std::string text, element.as_string());
          s.stop.push_back(std::move(text));
        }
      } else {
        return FieldReader::wrong_type(*stop,
                                       fmt::format("a string or an array of at most {} strings", kMaxStops));
      }
      for (const std::string& text : s.stop) {
        if (text.empty()) return stop->error("an empty stop string would end every answer at once");
      }
    }
    if (const auto ids = body_.find("stop_token_ids")) {
      if (ids->value().is_array() && ids->value().as_array().size() > kMaxBias) {
        return ids->error(fmt::format("more than {} entries", kMaxBias));
      }
      s.stop_token_ids.clear();
      DI_TRY(token_ids(*ids, s.stop_token_ids));
    }
    return {};
  }

  Status logit_bias() {
    const auto bias = body_.find("logit_bias");
    if (!bias) return {};
    if (!bias->value().is_object()) return FieldReader::wrong_type(*bias, "an object {\"token id\": number}");
    DI_ASSIGN(const auto members, bias->members());
    if (members.size() > kMaxBias) return bias->error(fmt::format("more than {} entries", kMaxBias));
    request_.sampling.logit_bias.clear();
    for (const auto& [name, value] : members) {
      std::int64_t id = 0;
      const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), id);
      if (failure != std::errc() || end != name.data() + name.size() || id < 0 || id > kMaxTokenId) {
        return value.error("expected a token id as the name");
      }
      DI_ASSIGN(const double amount, value.as_double(-100, 100));
      request_.sampling.logit_bias.emplace_back(static_cast<TokenId>(id), static_cast<float>(amount));
    }
    return {};
  }

  Status logprobs() {
    SamplingParams& s = request_.sampling;
    std::int64_t top = s.logprobs;
    if (chat()) {
      bool wanted = s.logprobs >= 0;
      DI_TRY(body_.boolean("logprobs", wanted));
      if (!wanted && body_.find("top_logprobs")) {
        return body_.error_at("top_logprobs", "needs \"logprobs\": true");
      }
      top = wanted ? std::max<std::int64_t>(top, 0) : -1;
      DI_TRY(body_.integer("top_logprobs", 0, kMaxLogprobs, top));
    } else {
      DI_TRY(body_.integer("logprobs", 0, kMaxLogprobs, top));
    }
    s.logprobs = static_cast<std::int32_t>(top);
    std::int64_t prompt = s.prompt_logprobs;
    DI_TRY(body_.integer("prompt_logprobs", 0, kMaxLogprobs, prompt));
    s.prompt_logprobs = static_cast<std::int32_t>(prompt);
    return {};
  }

  Status stream() {
    DI_TRY(body_.boolean("stream", request_.stream));
    if (request_.stream && !options_.allow_stream) {
      return unsupported("answers are not streamed here", body_.pointer("stream"));
    }
    if (const auto value = body_.find("stream_options")) {
      if (!value->value().is_object()) return FieldReader::wrong_type(*value, "an object");
      FieldReader fields(*value);
      DI_TRY(fields.boolean("include_usage", request_.stream_usage));
      fields.ignore("include_obfuscation");
      DI_TRY(unknown_fields(fields));
    }
    return {};
  }

  // Known fields whose default value is fine and whose other values are not available.
  Status refused_completion_fields() {
    bool echo = false;
    DI_TRY(body_.boolean("echo", echo));
    if (echo) {
      return unsupported("not available; prompt_logprobs gives the prompt's log-probabilities",
                         body_.pointer("echo"));
    }
    std::int64_t best_of = request_.sampling.n;
    DI_TRY(body_.integer("best_of", 1, kMaxAnswers, best_of));
    if (best_of != request_.sampling.n) {
      return unsupported("not available unless equal to n", body_.pointer("best_of"));
    }
    if (const auto suffix = body_.find("suffix"); suffix && suffix->value() != Json("")) {
      return unsupported("insertion before a suffix is not available", suffix->pointer());
    }
    return {};
  }

  Status refused_chat_fields() {
    for (const std::string_view name : {"functions", "function_call"}) {
      if (body_.find(name)) return unsupported("superseded: use tools and tool_choice", body_.pointer(name));
    }
    for (const std::string_view name : {"audio", "web_search_options"}) {
      if (body_.find(name)) return unsupported("not available", body_.pointer(name));
    }
    if (const auto value = body_.find("modalities");
        value && value->value() != Json(JsonArray{Json("text")})) {
      return unsupported("only [\"text\"] is available", value->pointer());
    }
    return {};
  }

  Status unknown_fields(const FieldReader& fields) {
    for (const std::string& name : fields.unread()) {
      const std::string near = nearest_name(name, kKnownFields);
      std::string message = "unknown field";
      if (near == name) message = fmt::format("not a field of {}", endpoint_path(request_.endpoint));
      if (!near.empty() && near != name) message += fmt::format("; did you mean \"{}\"?", near);
      if (options_.strict) return fields.error_at(name, std::move(message));
      request_.warnings.push_back(fmt::format("{}: {}; it was not used", fields.pointer(name), message));
    }
    return {};
  }

  JsonRef root_;
  FieldReader body_;  // over root_, noting what was read
  ParseOptions options_;
  ApiRequest request_;
};

}  // namespace

std::string_view endpoint_path(Endpoint endpoint) {
  return endpoint == Endpoint::kChat ? "/v1/chat/completions" : "/v1/completions";
}

Result<ApiRequest> parse_openai_request(Endpoint endpoint, const Json& body, const RequestDefaults& defaults,
                                        const ParseOptions& options) {
  if (!body.is_object()) {
    return invalid_argument(fmt::format("expected an object, found {}", describe_json(body)));
  }
  return Parser(endpoint, body, defaults, options).run();
}

}  // namespace deepinfer
