// RequestResult -> the JSON objects of the OpenAI API. The same result gives the same text, byte for byte.
#pragma once

#include <cstdint>
#include <string>

#include "api/openai_request.h"
#include "api/prompt_codec.h"
#include "deepinfer/types.h"
#include "io/json.h"

namespace deepinfer {

/// What an answer's envelope says beside the result.
struct ResponseContext {
  std::string id;            ///< e.g. "chatcmpl-1f…"
  std::string model;         ///< name of the model that answered
  std::int64_t created = 0;  ///< Unix seconds
  /// Adds what differs from run to run: `usage.prompt_tokens_details.cached_tokens` and `timing` in seconds.
  bool run_details = false;
};

/// A `chat.completion` or `text_completion` object with usage, seed, system_fingerprint and, when there are
/// any, warnings. `result` must be a success.
Json openai_response(const ApiRequest& request, const RequestResult& result, const PromptCodec& codec,
                     const ResponseContext& context);

/// {"code", "message", "param"}: an error of a request; `param` is the JSON pointer, or null.
Json openai_error(const Error& error);
/// The same for a result that failed.
Json openai_error(const RequestResult& result);

}  // namespace deepinfer
