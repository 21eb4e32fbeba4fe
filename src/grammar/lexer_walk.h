// Walks a trie with the DFA of one regex: which tokens stay inside the lexeme, which end it, and what is left
// of a token after the lexeme ended inside it. For the whole vocabulary it takes or leaves slices at once
// where it can.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "grammar/mask_store.h"
#include "grammar/regex_pool.h"
#include "grammar/vocabulary.h"

namespace deepinfer::grammar {

class LexerWalk {
 public:
  /// `fuel` counts trie nodes and is shared by all walks of one mask.
  LexerWalk(RegexPool& pool, const Vocabulary& vocabulary, std::int64_t& fuel)
      : pool_(pool), vocabulary_(vocabulary), fuel_(fuel) {}

  /// Ends are places behind at least one byte: where `state` itself can end, the matcher holds the row that
  /// follows as a thread of its own, and a lexeme's start never can.
  LexerEntryPtr entry(RegexId state, const TokenTrie& trie);
  /// The trie of what follows the places where the lexeme can end, for first bytes in `bytes`.
  TriePtr remainder(RegexId state, const TokenTrie& trie, const ByteSet& bytes);

 private:
  struct Reach {
    std::uint32_t inner;  // every string of up to this many slice characters stays inside, and can go on
    std::uint32_t outer;  // no string of this many slice characters stays inside
    bool can_end;         // some state reached on the way is nullable
  };
  Reach reach(RegexId state, const VocabularySlice& slice);
  bool successors(RegexId state, const VocabularySlice& slice, bool first, std::vector<RegexId>& out);
  RegexPool::Successors multibyte_successors(RegexId state);
  void walk(RegexId state, const TokenTrie& trie, LexerEntry& out, std::vector<std::uint32_t>* bits,
            std::vector<TokenId>* list);
  void collect(RegexId state, const TokenTrie& trie, const ByteSet& bytes,
               std::vector<std::pair<std::string, TokenId>>& out);

  RegexPool& pool_;
  const Vocabulary& vocabulary_;
  std::int64_t& fuel_;
};

}  // namespace deepinfer::grammar
