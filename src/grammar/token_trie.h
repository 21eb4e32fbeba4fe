// A trie over byte strings in depth-first order, walked front to back: a rejected byte skips its subtree with
// one addition. Used for the whole vocabulary and for the "what is left of the tokens" after a lexeme ended
// inside them, where one string can belong to many tokens. Immutable after construction, so shared freely
// between threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/charset.h"
#include "grammar/ir.h"

namespace deepinfer::grammar {

inline constexpr std::size_t kMaxTokenBytes = 255;  // depth is one byte; longer tokens are never allowed

class TokenTrie {
 public:
  struct Node {
    std::uint32_t subtree;  // nodes in the subtree, this one included
    std::uint32_t tokens;   // index of its first token; its tokens end where the next node's begin
    std::uint8_t byte;
    std::uint8_t depth;  // 1 for a first byte
    std::uint16_t unused = 0;
  };

  /// From pairs of text and token, in any order; empty texts go to root_tokens().
  static std::shared_ptr<const TokenTrie> build(std::vector<std::pair<std::string_view, TokenId>> entries);

  /// Depth-first, with one entry behind the end whose `tokens` is the token count.
  std::span<const Node> nodes() const { return {nodes_.data(), nodes_.size() - 1}; }
  const Node* data() const { return nodes_.data(); }
  std::uint32_t node_count() const { return static_cast<std::uint32_t>(nodes_.size() - 1); }
  std::span<const TokenId> tokens_of(std::uint32_t node) const {
    return {tokens_.data() + nodes_[node].tokens, nodes_[node + 1].tokens - nodes_[node].tokens};
  }
  /// Tokens of the empty string.
  std::span<const TokenId> root_tokens() const { return {tokens_.data(), nodes_[0].tokens}; }
  std::span<const TokenId> tokens() const { return tokens_; }
  /// First bytes of its strings.
  const ByteSet& first_bytes() const { return first_bytes_; }
  /// All bytes that occur.
  const ByteSet& all_bytes() const { return all_bytes_; }
  /// Equal content gives equal ids within a process run (a 64-bit content hash).
  std::uint64_t id() const { return id_; }
  std::size_t memory_bytes() const {
    return nodes_.size() * sizeof(Node) + tokens_.size() * sizeof(TokenId) + sizeof(*this);
  }

 private:
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;
  ByteSet first_bytes_, all_bytes_;
  std::uint64_t id_ = 0;
};

using TriePtr = std::shared_ptr<const TokenTrie>;

}  // namespace deepinfer::grammar
