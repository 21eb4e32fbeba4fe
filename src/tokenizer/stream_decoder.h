// Tokens to text as they come: whole characters only.
// A StreamDecoder is a pointer and four bytes; copy it freely (speculation keeps one per draft). One thread
// at a time uses one object. The Tokenizer must outlive it.
#pragma once

#include <string>
#include <string_view>

#include "deepinfer/types.h"
#include "tokenizer/utf8.h"

namespace deepinfer {

class Tokenizer;

class StreamDecoder {
 public:
  /// `skip_special`: tokens marked `special` give no text.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  /// The text that is complete with this token; always well-formed UTF-8, often empty inside a character.
  /// Bytes that cannot become a character give U+FFFD, one for each maximal ill-formed part. All pushes and
  /// the flush joined equal utf8::to_valid(decode(ids)).
  std::string push(TokenId id);
  /// Appends to `out` instead.
  void push_to(TokenId id, std::string& out);
  /// The same for raw bytes.
  void push_bytes(std::string_view bytes, std::string& out) { stream_.push(bytes, out); }
  /// Ends the stream: U+FFFD if a character is unfinished, else nothing.
  std::string flush();
  /// Bytes held back, 0..3.
  int pending() const { return stream_.pending(); }

 private:
  const Tokenizer* tokenizer_;
  utf8::Stream stream_;
  bool skip_special_;
};

}  // namespace deepinfer
