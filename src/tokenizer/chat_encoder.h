// Conversation -> prompt, in the V4.1 and V4 chat formats.
//
// The prompt is a list of segments: control tokens by id, text, and places of pictures. Only this encoder and
// the model's own wording can write control tokens; whatever came from messages, tools and schemas is encoded
// as plain text, so a user cannot forge a turn. Without such text the segments encode to the same ids as the
// joined string does with special tokens parsed (what the published encoders feed to their tokenizer).
// Immutable after creation; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "tokenizer/chat.h"
#include "tokenizer/chat_wording.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

/// A conversation ready for Tokenizer::encode_segments.
struct ChatPrompt {
  std::vector<PromptSegment> segments;
  std::vector<std::string> images;   ///< where the pictures are, in the order of their places
  bool starts_in_reasoning = false;  ///< the answer begins with reasoning (how to set up ChatStreamParser)
};

class ChatEncoder {
 public:
  /// Looks the markers up in the vocabulary. Errors: kUnsupported naming the missing token, e.g. for a V4
  /// vocabulary with the V4.1 format.
  static Result<ChatEncoder> create(const Tokenizer& tokenizer, ChatWording wording);
  /// The format a vocabulary is made for: kV41 if it has a system marker, else kV4.
  static ChatFormat format_of(const Tokenizer& tokenizer);

  /// Errors: kInvalidArgument with the message's JSON pointer: no messages, nothing to answer (the last
  /// message is an assistant's and is not to be continued), an effort the model does not know; kUnsupported
  /// when the vocabulary lacks a marker that is needed (pictures, tools, reminders).
  Result<ChatPrompt> render(const Conversation& conversation, const ChatOptions& options = {}) const;

  /// The segments as one string, markers spelled out.
  std::string to_text(const ChatPrompt& prompt) const;

  const ChatWording& wording() const { return wording_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }

  /// Ids of the markers of this vocabulary; -1: it has no such token.
  struct Markers {
    TokenId bos = -1, eos = -1, system = -1, user = -1, assistant = -1, think = -1, end_think = -1, dsml = -1,
            latest_reminder = -1, image = -1;
  };
  const Markers& markers() const { return markers_; }

 private:
  ChatEncoder(Tokenizer tokenizer, ChatWording wording)
      : tokenizer_(std::move(tokenizer)), wording_(std::move(wording)) {}

  Tokenizer tokenizer_;
  ChatWording wording_;
  Markers markers_;
};

}  // namespace deepinfer
