// A grammar ready to run against one vocabulary: flat rule tables, immutable, and behind a lock the lazily
// grown part that all matchers of the grammar share (regex states, lexeme sets, mask entries).
//
// Thread-safe; held by shared_ptr. Matchers (matcher.h) take lock() for the time of one call.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "grammar/ir.h"
#include "grammar/mask_store.h"
#include "grammar/vocabulary.h"

namespace deepinfer::grammar {

/// Asked now and then during compilation; true stops it with kCancelled.
using CancelFlag = std::atomic<bool>;

/// Lexemes that a parser row allows; interned per grammar.
struct LexemeSet {
  std::vector<std::uint32_t> lexemes;  // sorted, those matched as text
  std::vector<std::uint32_t> tokens;   // sorted, those matched as tokens
  ByteSet first;                       // bytes any of them can begin with
};

class CompiledGrammar {
 public:
  /// Flattened right-hand sides: position `dot` stands before symbol dots[dot]; the production goes on at dot
  /// + 1, behind a loop at dot + 4.
  struct Dot {
    enum class Kind : std::uint8_t {
      kEnd,
      kLexeme,
      kNonterminal,
      kLoopEnter,
      kLoopArm,
      kLoopNext,
      kLoopSeparator
    };
    Kind kind;
    std::uint32_t id;  // nonterminal that ends | lexeme | nonterminal | loop
  };
  struct Nonterminal {
    std::uint32_t first_production, production_count;  // into production_starts
    bool nullable;
  };
  struct Arm {
    bool is_lexeme;
    std::uint32_t id;
    LoopGuard guard;
    LoopUpdate update;
  };
  struct LoopTable {
    std::vector<Arm> arms;
    bool plain;  // state is a counter with these bounds
    std::uint32_t min, max;
    LoopGuard exit;
    bool has_separator, separator_is_lexeme;
    bool nullable;  // may be left at once
    std::uint32_t separator;
    std::uint32_t bit_count;
    std::vector<std::uint32_t> counter_caps;
  };
  struct LexemeTable {
    RegexId start;
    bool is_token, except;
    std::vector<TokenId> tokens;  // sorted
    std::uint32_t max_tokens;
    std::string name;

    /// For token lexemes.
    bool takes(TokenId token, const Vocabulary& vocabulary) const {
      const bool listed = std::binary_search(tokens.begin(), tokens.end(), token);
      return except ? !listed && !vocabulary.is_eos(token) : listed;
    }
  };

  /// Everything that grows while matchers run. Only under lock().
  struct Lazy {
    explicit Lazy(RegexPool&& pool) : regex(std::move(pool)) {}

    RegexPool regex;
    std::vector<LexemeSet> sets;
    std::unordered_map<std::string, std::uint32_t> set_index;
    struct PairKey {
      std::uint32_t state;
      std::uint64_t trie;
      bool operator==(const PairKey&) const = default;
    };
    struct PairHash {
      std::size_t operator()(const PairKey& k) const {
        return k.trie * 0x9E3779B97F4A7C15ull + k.state * 0xD6E8FEB86659FD93ull;
      }
    };
    std::unordered_map<PairKey, LexerEntryPtr, PairHash> entries;
    struct RemainderKey {
      PairKey pair;
      ByteSet bytes;
      bool operator==(const RemainderKey&) const = default;
    };
    struct RemainderHash {
      std::size_t operator()(const RemainderKey& k) const {
        std::uint64_t h = PairHash{}(k.pair);
        for (std::uint64_t w : k.bytes.words) h = (h ^ w) * 0xD6E8FEB86659FD93ull + (h >> 31);
        return h;
      }
    };
    std::unordered_map<RemainderKey, TriePtr, RemainderHash> remainders;
    /// All lexemes of a set at their start, joined: tokens inside, and the lexemes that can end in the trie.
    struct SetEntry {
      TokenSet inside;
      std::vector<std::pair<std::uint32_t, LexerEntryPtr>> ending;  // lexeme, entry
    };
    std::unordered_map<PairKey, std::shared_ptr<const SetEntry>, PairHash> set_entries;
    std::size_t cached_bytes = 0;  // of the three maps; they are emptied past a budget
  };

  const std::vector<Dot>& dots() const { return dots_; }
  const std::vector<Nonterminal>& nonterminals() const { return nonterminals_; }
  const std::vector<std::uint32_t>& production_starts() const { return production_starts_; }
  const std::vector<LoopTable>& loops() const { return loops_; }
  const std::vector<LexemeTable>& lexemes() const { return lexemes_; }
  std::uint32_t start_dot() const { return start_dot_; }
  bool start_nullable() const { return start_nullable_; }
  const GrammarLimits& limits() const { return limits_; }
  const VocabularyPtr& vocabulary() const { return vocabulary_; }

  std::unique_lock<std::mutex> lock() const { return std::unique_lock(mutex_); }
  /// The shared lazy part; the caller holds lock().
  Lazy& lazy() const { return *lazy_; }
  std::uint32_t intern_set(LexemeSet set) const;
  LexerEntryPtr entry(RegexId state, const TriePtr& trie, std::int64_t& fuel) const;
  TriePtr remainder(RegexId state, const TriePtr& trie, const ByteSet& bytes, std::int64_t& fuel) const;
  std::shared_ptr<const Lazy::SetEntry> set_entry(std::uint32_t set, const TriePtr& trie,
                                                  std::int64_t& fuel) const;

  /// True once the regex states passed max_regex_nodes: matchers of this grammar then fail with kDeadline,
  /// and a cache builds a fresh one for the next request. Any thread.
  bool exhausted() const { return exhausted_.load(std::memory_order_relaxed); }
  void note_exhausted() const { exhausted_.store(true, std::memory_order_relaxed); }

  /// Bytes held by this grammar alone: tables and regex states, without mask entries (those live in the
  /// vocabulary's store under its budget).
  std::size_t memory_bytes() const;

 private:
  friend class GrammarCompiler;
  CompiledGrammar() = default;
  void charge(std::size_t bytes) const;

  std::vector<Dot> dots_;
  std::vector<Nonterminal> nonterminals_;
  std::vector<std::uint32_t> production_starts_;
  std::vector<LoopTable> loops_;
  std::vector<LexemeTable> lexemes_;
  std::uint32_t start_dot_ = 0;
  bool start_nullable_ = false;
  GrammarLimits limits_;
  VocabularyPtr vocabulary_;
  mutable std::mutex mutex_;
  mutable std::atomic<bool> exhausted_{false};
  mutable std::unique_ptr<Lazy> lazy_;
};

using GrammarPtr = std::shared_ptr<const CompiledGrammar>;

/// Checks the grammar (errors of the builder, undefined or endless loops, nothing derivable), drops what can
/// never be used and lays it out. Time linear in the grammar. Errors: the builder's first error;
/// kInvalidArgument when the grammar matches nothing; kDeadline past a limit; kCancelled.
Result<GrammarPtr> compile(GrammarBuilder&& builder, VocabularyPtr vocabulary,
                           const CancelFlag* cancel = nullptr);

}  // namespace deepinfer::grammar
