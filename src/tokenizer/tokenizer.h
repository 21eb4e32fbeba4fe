// Byte-level BPE straight from a Hugging Face tokenizer.json: text to ids and back.
//
// Owns the vocabulary, the merges, the split rules and the added tokens. Immutable after loading: any thread
// may use one Tokenizer at once, and copies share the tables. For every byte string x, decode(encode(x)) ==
// x. Bytes that are not well-formed UTF-8 are each a piece of their own and cut the text around them in two,
// so encoding is defined for any input. Elsewhere: chat prompts (chat.h), streaming output
// (stream_decoder.h), the Engram token map (token_map.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "deepinfer/types.h"

namespace deepinfer {

struct EncodeOptions {
  /// true: added tokens in the text (`<think>`, `<|User|>`, ...) become their ids, longest match first, as
  /// the published libraries do. false: such text is encoded like any other; nobody can forge a turn from
  /// user text.
  bool parse_special = false;
};

/// A stretch of a prompt: text, one token given by id, or the place of a picture.
struct PromptSegment {
  enum class Kind { kText, kToken, kImage };
  Kind kind = Kind::kText;
  std::string text;         ///< kText: encoded as plain text, joined with neighbouring text first
  TokenId token = 0;        ///< kToken; kImage: the placeholder's id
  std::int32_t image = -1;  ///< kImage: index into the conversation's pictures, in order of appearance
};

class Tokenizer {
 public:
  /// Reads `path`. Errors: kIo / kNotFound (file), kCorrupt with a JSON pointer (damage: truncated JSON,
  /// duplicate or missing ids, missing byte tokens, merges of unknown tokens, wrong types), kUnsupported with
  /// the feature's name (normalizers, other model types, other pre-tokenizers, whitespace-eating added
  /// tokens).
  static Result<Tokenizer> load(const std::string& path);
  /// The same from the file's text; `name` stands for the file in errors.
  static Result<Tokenizer> parse(std::string_view json, const std::string& name = "tokenizer.json");

  /// Ids of any byte string. Cost: 10-50 ns a byte.
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const;
  /// Appends to `out` instead.
  void encode_to(std::string_view text, EncodeOptions options, std::vector<TokenId>& out) const;
  /// Ids of a prompt made of segments: kToken and kImage segments become exactly one id each.
  std::vector<TokenId> encode_segments(std::span<const PromptSegment> segments) const;

  /// The bytes of the ids, joined; may end inside a character. Ids outside the vocabulary give nothing.
  std::string decode(std::span<const TokenId> ids) const;
  /// The bytes one id stands for (added tokens: their text). Empty for ids outside the vocabulary. Lives as
  /// long as any copy of this Tokenizer.
  std::string_view token_bytes(TokenId id) const;
  /// The token as the file spells it (byte alphabet). Empty for ids outside the vocabulary.
  std::string_view token_text(TokenId id) const;

  /// Whether `id` is an added token / an added token marked `special`.
  bool is_added(TokenId id) const;
  bool is_special(TokenId id) const;
  /// Base vocabulary and added tokens; ids are 0 .. vocab_size()-1.
  std::int64_t vocab_size() const;
  /// The id whose token_text is `text`, if any.
  std::optional<TokenId> find_token(std::string_view text) const;
  /// Whether the split rules run in the hand-written pass (informational).
  bool uses_fast_split() const;

 private:
  friend class TokenizerBuilder;
  struct Tables;
  explicit Tokenizer(std::shared_ptr<const Tables> tables);
  std::shared_ptr<const Tables> tables_;
};

}  // namespace deepinfer
