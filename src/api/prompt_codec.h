// What front ends need to know about a model's text side: requests -> token ids, answers -> content,
// reasoning and calls. Sessions implement it over a tokenizer and a chat format (session.h); tests by fakes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/openai_request.h"
#include "base/result.h"
#include "deepinfer/types.h"
#include "tokenizer/chat.h"

namespace deepinfer {

/// One chat answer taken apart.
struct ChatAnswer {
  std::string content;
  std::string reasoning;
  std::vector<ToolCall> calls;
  std::vector<std::string> warnings;  ///< e.g. a call that is not well formed and was left in the content
};

/// All methods are const, deterministic and may be called from any thread.
class PromptCodec {
 public:
  virtual ~PromptCodec() = default;
  /// The prompt's token ids, and checks of every id in the request against the vocabulary. Errors:
  /// kInvalidArgument and kUnsupported with a JSON pointer into the request's body.
  virtual Result<std::vector<TokenId>> encode(const ApiRequest& request) const = 0;
  virtual ChatAnswer parse_answer(const ApiRequest& request, std::string_view text) const = 0;
  /// The bytes a token stands for; they need not be whole characters. Control tokens give their name.
  virtual std::string token_bytes(TokenId id) const = 0;
};

}  // namespace deepinfer
