// One line of a batch file -> a request body and its id. Three forms are understood:
//   {"custom_id": …, "method": "POST", "url": "/v1/chat/completions", "body": {…}}   the OpenAI batch format
//   {"messages": […], …}                                                             a chat body by itself
//   {"prompt": …, …}                                                                 a completion body by
//   itself
// The last two may carry their name as "custom_id" or "id".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "api/openai_request.h"
#include "base/result.h"
#include "io/json.h"

namespace deepinfer {

struct BatchRequest {
  Endpoint endpoint = Endpoint::kChat;
  Json body;
  std::string pointer;  ///< of the body within the line: "/body" or ""
};

struct BatchLine {
  std::optional<std::string> id;  ///< also of a line whose request is broken, when it could be read
  Result<BatchRequest> request;
};

/// Never fails as a whole: a broken line gives an error as its request. `strict`: unknown members of an
/// OpenAI line are errors. Thread-safe.
BatchLine parse_batch_line(std::string_view text, bool strict);

}  // namespace deepinfer
