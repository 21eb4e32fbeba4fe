#include "engine/request_check.h"

#include <fmt/format.h>

#include <cmath>

namespace deepinfer {
namespace {

Error bad(const char* field, std::string message) {
  return invalid_argument(std::move(message), field);
}

Status check_tokens(const Request& request, const RequestLimits& limits) {
  const std::int64_t prompt = static_cast<std::int64_t>(request.prompt.size());
  if (prompt == 0)
    return bad("prompt", "the prompt has no tokens; the beginning-of-sequence token alone would do");
  for (std::size_t i = 0; i < request.prompt.size(); ++i) {
    const TokenId token = request.prompt[i];
    if (token < 0 || token >= limits.vocab_size) {
      return bad("prompt", fmt::format("token {} of the prompt is {}, outside the vocabulary of {}", i, token,
                                       limits.vocab_size));
    }
  }
  const SamplingParams& s = request.sampling;
  if (s.max_tokens < -1)
    return bad("max_tokens", fmt::format("{} is not -1 (no limit) or a count", s.max_tokens));
  const std::int64_t least = s.max_tokens < 0 ? 1 : s.max_tokens;
  if (prompt > limits.max_context || least > limits.max_context - prompt) {
    return bad(
        prompt >= limits.max_context ? "prompt" : "max_tokens",
        fmt::format(
            "{} prompt tokens and {}{} answer tokens do not fit: the largest context here is {} tokens",
            prompt, s.max_tokens < 0 ? "at least " : "", least, limits.max_context));
  }
  if (s.min_tokens < 0 || s.min_tokens > max_new_tokens(request, limits.max_context)) {
    return bad("min_tokens", fmt::format("{} is below 0 or above the {} tokens that may come", s.min_tokens,
                                         max_new_tokens(request, limits.max_context)));
  }
  return {};
}

Status check_numbers(const SamplingParams& s, std::int64_t vocab_size) {
  // Each condition is false for NaN.
  if (!(s.temperature >= 0 && s.temperature <= 1e6)) {
    return bad("temperature", fmt::format("{} is outside [0, 1000000]; 0 is greedy", s.temperature));
  }
  if (s.top_k < 0) return bad("top_k", fmt::format("{} is negative; 0 switches it off", s.top_k));
  if (!(s.top_p > 0 && s.top_p <= 1)) return bad("top_p", fmt::format("{} is outside (0, 1]", s.top_p));
  if (!(s.min_p >= 0 && s.min_p < 1)) return bad("min_p", fmt::format("{} is outside [0, 1)", s.min_p));
  if (!(s.repetition_penalty >= 1e-3 && s.repetition_penalty <= 1e3)) {
    return bad("repetition_penalty",
               fmt::format("{} is outside [0.001, 1000]; 1 switches it off", s.repetition_penalty));
  }
  if (!(s.presence_penalty >= -2 && s.presence_penalty <= 2)) {
    return bad("presence_penalty", fmt::format("{} is outside [-2, 2]", s.presence_penalty));
  }
  if (!(s.frequency_penalty >= -2 && s.frequency_penalty <= 2)) {
    return bad("frequency_penalty", fmt::format("{} is outside [-2, 2]", s.frequency_penalty));
  }
  for (const auto& [token, bias] : s.logit_bias) {
    if (token < 0 || token >= vocab_size) {
      return bad("logit_bias", fmt::format("token {} is outside the vocabulary of {}", token, vocab_size));
    }
    if (!(std::abs(bias) <= 1e30f))
      return bad("logit_bias", fmt::format("the bias {} of token {} is not a usable number", bias, token));
  }
  if (s.n < 1 || s.n > kMaxAnswers) return bad("n", fmt::format("{} is outside 1..{}", s.n, kMaxAnswers));
  if (s.logprobs < -1 || s.logprobs > kMaxTopLogprobs) {
    return bad("logprobs", fmt::format("{} is outside 0..{} (-1 = none)", s.logprobs, kMaxTopLogprobs));
  }
  if (s.prompt_logprobs < -1 || s.prompt_logprobs > kMaxTopLogprobs) {
    return bad("prompt_logprobs",
               fmt::format("{} is outside 0..{} (-1 = none)", s.prompt_logprobs, kMaxTopLogprobs));
  }
  return {};
}

Status check_stops(const SamplingParams& s, const RequestLimits& limits) {
  std::int64_t bytes = 0;
  for (const std::string& stop : s.stop) {
    if (stop.empty()) return bad("stop", "a stop string is empty");
    bytes += static_cast<std::int64_t>(stop.size());
  }
  if (bytes > limits.max_stop_bytes) {
    return bad("stop", fmt::format("the stop strings have {} bytes together; at most {} are taken", bytes,
                                   limits.max_stop_bytes));
  }
  if (!s.stop.empty() && !limits.has_text)
    return bad("stop", "this engine has no tokenizer, so it cannot look for text");
  for (const TokenId token : s.stop_token_ids) {
    if (token < 0 || token >= limits.vocab_size) {
      return bad("stop_token_ids",
                 fmt::format("token {} is outside the vocabulary of {}", token, limits.vocab_size));
    }
  }
  return {};
}

}  // namespace

Status check_request(const Request& request, const RequestLimits& limits) {
  DI_TRY(check_numbers(request.sampling, limits.vocab_size));
  DI_TRY(check_tokens(request, limits));
  DI_TRY(check_stops(request.sampling, limits));
  if (request.structured.kind != StructuredOutput::Kind::kNone && !limits.has_grammars) {
    return Error{ErrorCode::kUnsupported, "this engine was made without structured output", "structured"};
  }
  return {};
}

std::int64_t max_new_tokens(const Request& request, std::int64_t max_context) {
  const std::int64_t room = max_context - static_cast<std::int64_t>(request.prompt.size());
  return request.sampling.max_tokens < 0 ? room : std::min(request.sampling.max_tokens, room);
}

}  // namespace deepinfer
