// The tokens a model can emit, as byte strings, and what is shared by all grammars over them: the trie, its
// slices and the mask store. One per tokenizer, immutable after create() but for the mask store, which locks
// itself.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/ir.h"
#include "grammar/token_trie.h"

namespace deepinfer::grammar {

class MaskStore;

/// A part of the vocabulary whose tokens consist of whole ordinary characters of one kind, so that a mask can
/// take or leave all of them at once. Tokens are grouped by their number of characters.
struct VocabularySlice {
  ByteSet first_ascii;  // the first character: one of these, or a multi-byte one when `multibyte`
  ByteSet rest_ascii;   // every further character, likewise
  std::uint32_t first_kind = 0, rest_kind = 0;  // equal sets have equal numbers, below 100
  bool multibyte = false;
  static constexpr int kLengths = 12;  // groups: 1, 2, ... 11 characters, and 12 or more
  std::array<TriePtr, kLengths> by_length;
  /// up_to[n]: bit mask of all tokens of groups 0..n.
  std::array<std::vector<std::uint32_t>, kLengths> up_to;
  std::uint32_t max_chars = 0;
};

class Vocabulary {
 public:
  struct Options {
    std::vector<std::string>
        tokens;  // index = id; the bytes the token stands for (empty: never allowed as text)
    std::vector<TokenId> special_tokens;  // control tokens: never matched by text, whatever their spelling
    std::vector<TokenId> eos_tokens;      // every id the engine stops on
    std::size_t logits_width =
        0;  // >= tokens.size(); ids above the tokens are always masked. 0 = tokens.size()
    std::size_t mask_store_bytes = 256u << 20;  // budget of the shared mask store
  };

  /// kInvalidArgument: an id out of range, or logits narrower than the vocabulary.
  static Result<std::shared_ptr<const Vocabulary>> create(Options options);
  ~Vocabulary();

  /// Width of a mask: one bit a logit, in 32-bit words.
  std::size_t logits_width() const { return width_; }
  std::size_t mask_words() const { return (width_ + 31) / 32; }
  std::size_t token_count() const { return tokens_.size(); }
  bool is_special(TokenId id) const { return special_[static_cast<std::size_t>(id)]; }
  bool is_eos(TokenId id) const;
  std::span<const TokenId> eos_tokens() const { return eos_; }
  /// The bytes that a grammar sees; empty for special tokens, for ids without text and for ids out of range.
  std::string_view text(TokenId id) const {
    return id >= 0 && static_cast<std::size_t>(id) < tokens_.size()
               ? std::string_view(tokens_[static_cast<std::size_t>(id)])
               : std::string_view();
  }
  /// Special tokens by their spelling as given; -1 when there is none.
  TokenId find_special(std::string_view spelling) const;
  /// Any token by its spelling, special ones first; -1 when there is none.
  TokenId find_token(std::string_view spelling) const;

  /// A marker cut into ordinary text and special tokens spelled in it (the longest spelling first).
  struct MarkerPiece {
    std::string text;  // when token < 0
    TokenId token = -1;
  };
  std::vector<MarkerPiece> split_marker(std::string_view marker) const;

  const TriePtr& trie() const { return trie_; }
  /// Tokens that are in no slice.
  const TriePtr& rest() const { return rest_; }
  std::span<const VocabularySlice> slices() const { return slices_; }
  MaskStore& mask_store() const { return *mask_store_; }

 private:
  Vocabulary();
  void build_slices();

  std::size_t width_ = 0;
  std::vector<std::string> tokens_;
  std::vector<bool> special_;
  std::vector<std::pair<std::string, TokenId>> special_names_;
  std::vector<TokenId> eos_;
  TriePtr trie_, rest_;
  std::vector<VocabularySlice> slices_;
  std::unique_ptr<MaskStore> mask_store_;
};

using VocabularyPtr = std::shared_ptr<const Vocabulary>;

}  // namespace deepinfer::grammar
