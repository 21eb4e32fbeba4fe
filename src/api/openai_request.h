// The bodies of /v1/chat/completions and /v1/completions: JSON -> ApiRequest. Shared by the batch runner and
// servers; knows nothing of files, flags or sockets. Results go the other way in openai_response.h.
//
// Accepted fields, their ranges and what each does are listed in docs/batch.md. A field that would change the
// answer and is not understood is an error in strict mode and a warning of the result otherwise; fields that
// only label a request (user, metadata, …) are ignored.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "deepinfer/types.h"
#include "io/json.h"
#include "tokenizer/chat.h"

namespace deepinfer {

enum class Endpoint { kChat, kCompletion };
/// "/v1/chat/completions" or "/v1/completions".
std::string_view endpoint_path(Endpoint endpoint);

/// What the caller's configuration says where a request says nothing.
struct RequestDefaults {
  SamplingParams sampling;
  ChatOptions chat;
};

struct ParseOptions {
  bool strict = true;         ///< unknown fields are errors
  bool allow_stream = false;  ///< `stream: true` is refused otherwise
};

/// A request as the API describes it: checked fields, text not yet encoded.
struct ApiRequest {
  Endpoint endpoint = Endpoint::kChat;
  std::string model;          ///< as written; "" when absent
  Conversation conversation;  ///< chat; tools are left out when tool_choice is "none"
  ChatOptions chat;
  std::string prompt;                  ///< completion as text
  std::vector<TokenId> prompt_tokens;  ///< completion as token ids; used when `prompt_is_tokens`
  bool prompt_is_tokens = false;
  SamplingParams sampling;
  StructuredOutput structured;
  bool stream = false;
  bool stream_usage = false;          ///< stream_options.include_usage
  std::vector<std::string> warnings;  ///< lenient mode: what was not used

  bool thinking() const { return endpoint == Endpoint::kChat && chat.thinking; }
};

/// Errors: kInvalidArgument or kUnsupported with a JSON pointer into `body`. Thread-safe.
Result<ApiRequest> parse_openai_request(Endpoint endpoint, const Json& body, const RequestDefaults& defaults,
                                        const ParseOptions& options);

}  // namespace deepinfer
