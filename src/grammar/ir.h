// The intermediate form every front end (JSON Schema, regex, GBNF, Lark, structural tags) lowers into: a
// context-free grammar whose terminals ("lexemes") are regular expressions over bytes, plus counted loops
// with a small finite state.
//
// Language: the strings the start symbol derives; a lexeme may stand for any of its strings, there is no
// longest-match rule, so no split of the text into lexemes is ever lost. Left, right and hidden recursion and
// empty rules are fine. A GrammarBuilder is used by one thread, then given to compile() (compiled_grammar.h).
//
// Cost advice: adjacent terminals should be joined with RegexPool::concat into one lexeme (a parser row is
// made per lexeme, never per byte), and whatever is regular should be a lexeme rather than rules. Lists and
// maps should be loops, not recursion: a loop is one parser item with a counter whatever its bounds.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "grammar/regex_pool.h"

namespace deepinfer::grammar {

/// Token id as the tokenizer and the sampler count them.
using TokenId = std::int32_t;

/// Limits ("fuel") that make work on one grammar bounded and the same on every machine. Passing one is an
/// error of that request (ErrorCode::kDeadline), never of the process.
struct GrammarLimits {
  std::uint32_t max_regex_nodes = 500'000;   // about 100 bytes each
  std::uint32_t max_symbols = 500'000;       // right-hand-side symbols and loop arms in all
  std::uint32_t max_row_items = 20'000;      // parser items alive at one position
  std::uint32_t max_rows_per_mask = 50'000;  // parser rows one mask may build
  std::uint32_t max_trie_nodes_per_mask = 5'000'000;
  std::uint32_t max_threads = 2'000;  // ways to read the bytes since the last lexeme end
};

/// A grammar symbol; only a builder makes valid ones.
struct Symbol {
  enum class Kind : std::uint8_t { kLexeme, kNonterminal, kLoop };
  Kind kind = Kind::kLexeme;
  std::uint32_t id = 0;
  bool operator==(const Symbol&) const = default;
};

/// Properties of a lexeme beyond its language.
struct LexemeOptions {
  std::string name;              // for error texts
  std::uint32_t max_tokens = 0;  // > 0: after this many tokens inside the lexeme it ends as if complete
};

/// One literal of a clause: bit `bit` of the loop state has the value `value`.
struct BitLiteral {
  std::uint32_t bit = 0;
  bool value = true;
};

/// minimum <= counter <= maximum.
struct CounterRange {
  std::uint32_t counter = 0;
  std::uint32_t minimum = 0;
  std::uint32_t maximum = kUnbounded;
};

/// A condition on a loop state: all parts must hold.
struct LoopGuard {
  std::vector<std::uint32_t> bits_set;
  std::vector<std::uint32_t> bits_clear;
  std::vector<std::vector<BitLiteral>> clauses;  // each clause: at least one of its literals holds
  std::vector<CounterRange> counters;
};

/// What finishing an arm does to the loop state. Order: bits, then `assign`, then `add`.
struct LoopUpdate {
  std::vector<std::uint32_t> set_bits;
  std::vector<std::uint32_t> clear_bits;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> assign;  // counter, value
  std::vector<std::pair<std::uint32_t, std::uint32_t>>
      add;  // counter, amount (saturates at the counter's cap)
};

/// One alternative of a loop iteration. The body must not derive the empty string.
struct LoopArm {
  Symbol body;
  LoopGuard guard;
  LoopUpdate update;
};

/// A loop with a finite state of `bit_count` bits and some counters, all zero at the start: repeatedly one
/// arm whose guard holds is parsed and its update applied, `separator` between iterations, until the loop is
/// left, which is possible whenever `exit` holds. Examples:
///   any-order object: one arm a property, guard {bits_clear: k}, update {set_bits: k}, exit {bits_set:
///   required}; ordered object:   counter 0 = position; arm k: guard counter 0 in [last required before k +
///   1, k],
///                     update assign 0 := k + 1; exit counter 0 >= last required + 1;
///   map:              one arm, update add counter by 1, guard counter <= max - 1, exit counter >= min;
///   uniqueItems over a finite domain: one arm a value, one bit each.
/// A loop whose arms are all refused while `exit` does not hold is a dead end: the matcher reports it. Build
/// guards so that it cannot happen.
struct Loop {
  std::vector<LoopArm> arms;
  std::optional<Symbol> separator;
  LoopGuard exit;
  std::uint32_t bit_count = 0;
  std::vector<std::uint32_t> counter_caps;  // one per counter: adding stops there. Use the largest value any
                                            // guard can tell apart, so that states repeat and caches hit.
};

class GrammarBuilder {
 public:
  explicit GrammarBuilder(const GrammarLimits& limits = {});

  const GrammarLimits& limits() const { return limits_; }
  RegexPool& regex() { return regex_; }

  /// The terminal `regex`. The same regex with the same options gives the same symbol. If the regex is
  /// nullable, the symbol is a nonterminal with an empty alternative; both forms may be used anywhere.
  Symbol lexeme(RegexId regex, const LexemeOptions& options = {});
  Symbol literal(std::string_view text) { return lexeme(regex_.literal(text)); }
  /// One of these tokens, as a token rather than as text. Special (control) tokens can be matched in no other
  /// way: no regex ever matches them.
  Symbol tokens(std::span<const TokenId> ids);
  /// Any one token but these and but the EOS tokens.
  Symbol tokens_except(std::span<const TokenId> ids);

  /// A fresh nonterminal; `name` is for error texts and need not be unique.
  Symbol nonterminal(std::string name = {});
  /// nonterminal -> rhs. An empty rhs derives the empty string.
  void add_production(Symbol nonterminal, std::span<const Symbol> rhs);
  void add_production(Symbol nonterminal, std::initializer_list<Symbol> rhs) {
    add_production(nonterminal, std::span(rhs.begin(), rhs.size()));
  }

  // Conveniences; each returns a symbol, making an anonymous nonterminal where needed.
  Symbol epsilon();
  /// A symbol that derives nothing; rules that need it vanish.
  Symbol never();
  Symbol sequence(std::span<const Symbol> parts);
  Symbol sequence(std::initializer_list<Symbol> parts) {
    return sequence(std::span(parts.begin(), parts.size()));
  }
  Symbol alternatives(std::span<const Symbol> parts);
  Symbol alternatives(std::initializer_list<Symbol> parts) {
    return alternatives(std::span(parts.begin(), parts.size()));
  }
  Symbol optional(Symbol x);
  /// x min to max times, with `separator` between two of them; bounds up to 2^32-2 cost nothing, max may be
  /// kUnbounded. x may be nullable only without a separator.
  Symbol repeat(Symbol x, std::uint32_t min, std::uint32_t max = kUnbounded,
                std::optional<Symbol> separator = {});
  Symbol loop(Loop loop);

  void set_start(Symbol start) { start_ = start; }

  /// Keeps the first error; compile() returns it. For errors found deep in a front end's recursion.
  void fail(Error error);
  const std::optional<Error>& error() const { return error_; }

  // ---- What compile() reads.
  struct Lexeme {
    RegexId regex = kEmptyRegex;
    bool is_token = false;  // matched as a token: one of `tokens`, or none of them when `except`
    bool except = false;
    std::vector<TokenId> tokens;  // sorted
    LexemeOptions options;
  };
  struct Production {
    std::vector<Symbol> rhs;
  };
  struct Nonterminal {
    std::string name;
    std::vector<Production> productions;
  };
  /// Plain counted repetition is a loop with one arm and no guards; `min`/`max` hold its bounds.
  struct LoopEntry {
    Loop loop;
    bool plain = false;
    std::uint32_t min = 0, max = 0;
  };
  const std::vector<Lexeme>& lexemes() const { return lexemes_; }
  const std::vector<Nonterminal>& nonterminals() const { return nonterminals_; }
  const std::vector<LoopEntry>& loops() const { return loops_; }
  std::optional<Symbol> start() const { return start_; }
  /// Moves the expressions out; the builder is finished after that.
  RegexPool take_regex() { return std::move(regex_); }

 private:
  bool charge(std::size_t symbols);

  GrammarLimits limits_;
  RegexPool regex_;
  std::vector<Lexeme> lexemes_;
  std::unordered_map<std::string, Symbol> lexeme_index_;
  std::vector<Nonterminal> nonterminals_;
  std::vector<LoopEntry> loops_;
  std::optional<Symbol> start_;
  std::optional<Symbol> epsilon_, never_;
  std::optional<Error> error_;
  std::uint64_t symbol_count_ = 0;
};

}  // namespace deepinfer::grammar
