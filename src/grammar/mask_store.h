// What one regex state accepts of one trie, without regard to any parser: computed once for a (state, trie)
// pair, shared by every grammar over the same vocabulary, and dropped again under a byte budget.
//
// Thread-safe: all calls lock; entries are immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "grammar/charset.h"
#include "grammar/regex_pool.h"
#include "grammar/token_trie.h"

namespace deepinfer::grammar {

/// A set of tokens: a list, or a bit mask where that is smaller.
struct TokenSet {
  std::vector<TokenId> list;
  std::vector<std::uint32_t> bits;

  bool empty() const { return list.empty() && bits.empty(); }
  void add_to(std::uint32_t* mask) const;
  std::size_t memory_bytes() const {
    return list.capacity() * sizeof(TokenId) + bits.capacity() * sizeof(std::uint32_t);
  }
};

/// The outcome of walking a trie from a regex state.
struct LexerEntry {
  TokenSet inside;    // tokens after which the lexeme can still go on
  TokenSet at_end;    // tokens that end exactly where the lexeme must end
  ByteSet after_end;  // bytes that follow a place inside a token where the lexeme can end (may hold too many)
  std::size_t memory_bytes() const { return sizeof(*this) + inside.memory_bytes() + at_end.memory_bytes(); }
};
using LexerEntryPtr = std::shared_ptr<const LexerEntry>;

class MaskStore {
 public:
  explicit MaskStore(std::size_t budget_bytes) : budget_bytes_(budget_bytes) {}

  struct Key {
    RegexHash state;
    std::uint64_t trie;
    ByteSet bytes;  // for remainders: which first bytes they were made for; for entries: empty
    bool operator==(const Key&) const = default;
  };

  /// Null when it is not there.
  LexerEntryPtr find_entry(const Key& key);
  void put_entry(const Key& key, LexerEntryPtr entry);
  TriePtr find_remainder(const Key& key);
  /// Interns by content: returns an equal trie when there is one already.
  TriePtr put_remainder(const Key& key, TriePtr trie);

  std::size_t memory_bytes() const;
  std::size_t eviction_count() const;

 private:
  struct KeyHash {
    std::size_t operator()(const Key& k) const {
      std::uint64_t h = k.state.lo ^ (k.trie * 0x9E3779B97F4A7C15ull);
      for (std::uint64_t w : k.bytes.words) h = (h ^ w) * 0xD6E8FEB86659FD93ull + (h >> 29);
      return h;
    }
  };
  template <class Value>
  struct Slot {
    Value value;
    std::size_t bytes;
    std::uint64_t last_use;
  };
  void charge(std::size_t bytes);

  const std::size_t budget_bytes_;
  mutable std::mutex mutex_;
  std::size_t used_bytes_ = 0;
  std::size_t evictions_ = 0;
  std::uint64_t clock_ = 0;
  std::unordered_map<Key, Slot<LexerEntryPtr>, KeyHash> entries_;
  std::unordered_map<Key, Slot<TriePtr>, KeyHash> remainders_;
  std::unordered_map<std::uint64_t, std::weak_ptr<const TokenTrie>> by_content_;
};

}  // namespace deepinfer::grammar
