// Byte-pair merging of one piece of text: the lowest-ranked adjacent pair merges first, the leftmost of
// equals, until no pair of the table is left. Pieces that are themselves a token are looked up whole; other
// short pieces go through a small cache of the calling thread. Immutable after creation; any thread may call
// encode_piece. Cost: one hash look-up for a known piece, O(n^2) small steps for a piece of n <= 48 bytes,
// O(n log n) above.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "deepinfer/types.h"

namespace deepinfer {

/// Token bytes of a vocabulary in one block: entry i is bytes[offsets[i], offsets[i + 1]).
struct TokenBytes {
  std::vector<std::uint64_t> offsets = {0};
  std::vector<char> bytes;

  void push_back(std::string_view token);
  std::int64_t size() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  std::string_view operator[](TokenId id) const {
    const auto i = static_cast<std::size_t>(id);
    return {bytes.data() + offsets[i], static_cast<std::size_t>(offsets[i + 1] - offsets[i])};
  }
};

/// left and right, adjacent, become merged. A merge's rank is its index in the list.
struct Merge {
  TokenId left = 0, right = 0, merged = 0;
};

class Bpe {
 public:
  /// Encodes nothing; to be assigned to.
  Bpe() = default;
  /// `byte_tokens[b]` is the token of the single byte b. `words` lists the tokens that may be looked up
  /// whole; a word enters the table only if merging its bytes gives that one token, or always with
  /// `ignore_merges`.
  Bpe(const std::vector<Merge>& merges, const std::array<TokenId, 256>& byte_tokens, const TokenBytes& tokens,
      const std::vector<TokenId>& words, bool ignore_merges);

  /// Appends the tokens of `piece` (any bytes).
  void encode_piece(std::string_view piece, std::vector<TokenId>& out) const;

 private:
  static constexpr std::uint32_t kNoRank = 0xFFFFFFFFu;
  struct PairSlot {
    std::uint64_t pair = kNoPair;
    std::uint32_t rank = kNoRank;
    TokenId merged = 0;
  };
  static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};
  struct WordSlot {
    std::uint32_t hash = 0;
    TokenId id = -1;
    std::uint64_t offset = 0;  // into word_bytes_
    std::uint32_t size = 0;
  };

  const PairSlot& find_pair(TokenId left, TokenId right) const;
  TokenId find_word(std::string_view piece, std::uint64_t hash) const;
  void merge_short(std::string_view piece, std::vector<TokenId>& out) const;
  void merge_long(std::string_view piece, std::vector<TokenId>& out) const;
  void merge_piece(std::string_view piece, std::vector<TokenId>& out) const;

  std::array<TokenId, 256> byte_tokens_{};
  std::vector<PairSlot> pairs_;  // open addressing, at most half full
  std::uint64_t pair_mask_ = 0;
  std::vector<WordSlot> words_;  // likewise
  std::uint64_t word_mask_ = 0;
  std::vector<char> word_bytes_;
  std::uint32_t serial_ = 0;  // tells the entries of different Bpe objects in a thread's cache apart
};

}  // namespace deepinfer
