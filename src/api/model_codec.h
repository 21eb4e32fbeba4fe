// The PromptCodec of a model folder: its tokenizer.json and chat format.
#pragma once

#include <memory>
#include <string>

#include "api/prompt_codec.h"
#include "base/result.h"
#include "tokenizer/chat_encoder.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

/// Immutable; any thread. A completion given as text starts with the beginning-of-sequence token, as every
/// training document did; one given as token ids is used as it is.
class ModelCodec final : public PromptCodec {
 public:
  /// Errors: those of the files (tokenizer.json, chat_wording.json), with their places.
  static Result<std::unique_ptr<ModelCodec>> load(const std::string& folder);

  Result<std::vector<TokenId>> encode(const ApiRequest& request) const override;
  ChatAnswer parse_answer(const ApiRequest& request, std::string_view text) const override;
  std::string token_bytes(TokenId id) const override { return std::string(tokenizer_.token_bytes(id)); }

  const Tokenizer& tokenizer() const { return tokenizer_; }
  const ChatEncoder& chat() const { return chat_; }

 private:
  ModelCodec(Tokenizer tokenizer, ChatEncoder chat)
      : tokenizer_(std::move(tokenizer)), chat_(std::move(chat)) {}

  Tokenizer tokenizer_;
  ChatEncoder chat_;
};

}  // namespace deepinfer
