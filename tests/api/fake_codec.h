// A text side without a model: one token a byte (id = 16 + byte), chat messages joined with their roles.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/prompt_codec.h"

namespace deepinfer::testing {

class FakeCodec : public PromptCodec {
 public:
  static constexpr TokenId kFirstByte = 16;
  static constexpr TokenId kVocabSize = 16 + 256;

  static std::vector<TokenId> bytes_to_tokens(std::string_view text) {
    std::vector<TokenId> out;
    for (const char c : text) out.push_back(kFirstByte + static_cast<unsigned char>(c));
    return out;
  }

  Result<std::vector<TokenId>> encode(const ApiRequest& request) const override {
    if (request.endpoint == Endpoint::kCompletion) {
      return request.prompt_is_tokens ? request.prompt_tokens : bytes_to_tokens(request.prompt);
    }
    std::string text;
    for (const ChatMessage& message : request.conversation.messages) {
      text += chat_role_name(message.role) + std::string(": ");
      for (const ContentPart& part : message.content) text += part.text;
      text += "\n";
    }
    return bytes_to_tokens(text);
  }

  ChatAnswer parse_answer(const ApiRequest& request, std::string_view text) const override {
    ChatAnswer answer;
    const std::size_t end = text.find("</think>");
    if (request.thinking() && end != std::string_view::npos) {
      answer.reasoning = text.substr(0, end);
      text.remove_prefix(end + 8);
    }
    const std::size_t call = text.find("CALL ");
    if (call != std::string_view::npos) {
      answer.calls.push_back({"call_0", std::string(text.substr(call + 5)), "{}"});
      text = text.substr(0, call);
    }
    answer.content = text;
    return answer;
  }

  std::string token_bytes(TokenId id) const override {
    if (id < kFirstByte || id >= kVocabSize) return "";
    return std::string(1, static_cast<char>(id - kFirstByte));
  }
};

}  // namespace deepinfer::testing
