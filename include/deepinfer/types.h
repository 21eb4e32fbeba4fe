// What a caller gives and gets: sampling parameters, a request, its events and its result. Plain values, no
// threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace deepinfer {

/// An id of the tokenizer's vocabulary, 0 <= id < vocab_size.
using TokenId = std::int32_t;

/// How the next token is chosen. The order of the steps is fixed and documented in docs/design/sampling.md:
/// penalties, logit bias, grammar mask, temperature, top-k, top-p, min-p, Gumbel-max draw.
struct SamplingParams {
  double temperature = 1.0;         ///< >= 0; 0 means greedy (the largest logit, ties to the lower id)
  std::int64_t top_k = 0;           ///< 0 = all
  double top_p = 1.0;               ///< (0, 1]
  double min_p = 0.0;               ///< [0, 1), relative to the most probable token
  double repetition_penalty = 1.0;  ///< > 0; prompt and answer; divides positive, multiplies negative logits
  double presence_penalty = 0.0;    ///< [-2, 2]; answer only
  double frequency_penalty = 0.0;   ///< [-2, 2]; answer only
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<std::string> stop;  ///< the answer ends before the first of these; it is not part of the text
  std::vector<TokenId> stop_token_ids;  ///< beside the model's own end-of-sequence ids
  bool ignore_eos = false;
  std::int64_t max_tokens = -1;       ///< -1 = as many as the context allows
  std::int64_t min_tokens = 0;        ///< end-of-sequence and stop ids are masked before that many
  std::int32_t n = 1;                 ///< independent answers to one prompt; answer i uses seed mix(seed, i)
  std::optional<std::uint64_t> seed;  ///< absent: derived from the engine seed and the request id, and echoed
  std::int32_t logprobs = -1;  ///< -1 = none; k >= 0 = the chosen token and the k most probable (k <= 20)
  std::int32_t prompt_logprobs = -1;  ///< the same for every prompt token but the first
};

/// One text constraint; empty kind = none.
struct StructuredOutput {
  enum class Kind { kNone, kJsonObject, kJsonSchema, kRegex, kGbnf, kLark, kChoice };
  Kind kind = Kind::kNone;
  std::string text;                  ///< schema, pattern or grammar
  std::vector<std::string> choices;  ///< kChoice only
  bool best_effort = false;          ///< loosen what cannot be enforced and list it, instead of refusing
  bool after_thinking = false;       ///< the constraint starts behind </think>
};

/// One unit of work: token ids in, `sampling.n` answers out. Chat and text requests are encoded before.
struct Request {
  std::string id;  ///< the caller's name for it; part of the derived seed; need not be unique
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  StructuredOutput structured;
  std::int32_t priority = 0;  ///< higher runs first
};

enum class FinishReason { kStop, kLength, kError, kCancelled };
/// "stop", "length", "error", "cancelled".
const char* finish_reason_name(FinishReason reason);

/// Natural-log probability of one token, and of the most probable alternatives at its position (descending).
struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;
  std::vector<std::pair<TokenId, float>> top;
};

/// One answer of a request.
struct Answer {
  std::int32_t index = 0;  ///< 0 .. n-1
  std::vector<TokenId> tokens;
  std::string text;  ///< decoded, stop text cut, never half a UTF-8 character
  FinishReason finish = FinishReason::kStop;
  std::string stop_text;  ///< the stop string that ended it, or ""
  std::vector<TokenLogprob> logprobs;
};

/// Seconds on a monotonic clock, relative to submission.
struct RequestTiming {
  double queued = 0;       ///< until the first row was computed
  double first_token = 0;  ///< TTFT
  double total = 0;
  std::int32_t preemptions = 0;
};

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t completion_tokens = 0;
};

/// The whole outcome of a request: answers, or an error that concerns this request only.
struct RequestResult {
  std::string id;
  std::vector<Answer> answers;
  std::vector<TokenLogprob> prompt_logprobs;  ///< entry i belongs to prompt token i+1
  std::uint64_t seed = 0;                     ///< the seed used
  Usage usage;
  RequestTiming timing;
  std::vector<std::string> warnings;  ///< e.g. loosened schema keywords
  std::string error_code;             ///< "" = success, else a stable snake_case name
  std::string error;                  ///< one sentence
};

/// A piece of one answer as it is produced.
struct Delta {
  std::int32_t index = 0;       ///< which of the n answers
  std::vector<TokenId> tokens;  ///< new tokens
  std::string text;             ///< new whole characters that can no longer become part of a stop string
  std::vector<TokenLogprob> logprobs;
};

}  // namespace deepinfer
