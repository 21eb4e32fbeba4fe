// Earley rows of one matcher. A row holds the items alive at one place between lexemes. Rows are hash-consed:
// a row's identity is its set of items with their origins (which are rows themselves), not its place in the
// text, so the same situation reached twice, in two elements of a list or at two possible ends of an
// identifier, is the same row and everything remembered about it holds again.
//
// Not thread-safe; copying copies everything. Calls need the grammar's lock (they intern lexeme sets).
// After J. Earley, "An efficient context-free parsing algorithm", CACM 13(2), 1970; empty rules after Aycock
// and Horspool, "Practical Earley parsing", 2002; right recursion after J. Leo, 1991.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "grammar/compiled_grammar.h"

namespace deepinfer::grammar {

using RowId = std::uint32_t;
inline constexpr RowId kNoRow = 0xFFFFFFFFu;  // the dead row: nothing can follow

class RowPool {
 public:
  /// One lexeme that ended, read from a row on.
  struct End {
    RowId row;
    std::uint32_t lexeme;
    bool operator==(const End&) const = default;
  };

  explicit RowPool(const CompiledGrammar& grammar);

  RowId first_row();
  /// The row after `lexeme` was read from `row`; kNoRow when it was not allowed or nothing can follow.
  /// Remembered.
  RowId scan(RowId row, std::uint32_t lexeme);
  /// The row when several lexemes end at one place.
  RowId scan(std::span<const End> ends);

  /// Whether the text may end here.
  bool accepting(RowId row) const { return rows_[row].accepting; }
  /// Allowed lexemes, as an id of CompiledGrammar's lexeme sets.
  std::uint32_t lexeme_set(RowId row) const { return rows_[row].set; }

  /// The first limit that was passed, if any; the rows made since are not to be relied on.
  const std::optional<Error>& error() const { return error_; }
  void clear_error() { error_.reset(); }
  std::size_t row_count() const { return rows_.size(); }
  std::size_t memory_bytes() const;
  /// Keeps the rows of `roots` and their origins only and renumbers them; `roots` get their new ids.
  void compact(std::span<RowId*> roots);

 private:
  static constexpr std::uint32_t kSelf = 0xFFFFFFFFu;  // origin: the row itself
  static constexpr std::uint32_t kRootEnd = 0xFFFFFFFFu;
  struct Item {
    std::uint32_t dot, origin, state;
    bool operator==(const Item&) const = default;
    auto operator<=>(const Item&) const = default;
  };
  // An item seen from the symbol it waits for. Items at a loop wait for each allowed arm.
  struct Waiter {
    std::uint32_t symbol;  // lexeme * 2 + 1 or nonterminal * 2
    std::uint32_t dot, origin, state, arm;
  };
  struct Row {
    std::uint32_t waiters, waiter_count;
    std::uint32_t kernel, kernel_count;
    std::uint32_t set;
    bool accepting;
  };
  struct LoopChoice {
    std::vector<std::uint32_t> arms;
    bool may_exit;
  };

  RowId build();
  void add_kernel(Item item);
  void complete(std::uint32_t nonterminal, std::uint32_t origin);
  void advance(const Waiter& w, RowId row);
  std::span<const Waiter> waiting(RowId row, std::uint32_t symbol) const;
  void predict(std::uint32_t dot, std::uint32_t state, std::uint32_t origin, std::vector<Waiter>& out);
  void predict_arms(std::uint32_t loop, std::uint32_t state, std::uint32_t at, std::uint32_t origin,
                    std::vector<Waiter>& out);
  void predict_nonterminal(std::uint32_t nonterminal);
  const LoopChoice& choice(std::uint32_t loop, std::uint32_t state);
  bool holds(const LoopGuard& guard, const std::vector<std::uint32_t>& words, std::uint32_t bit_words) const;
  std::uint32_t after_arm(std::uint32_t loop, std::uint32_t state, std::uint32_t arm);
  std::uint32_t first_state(std::uint32_t loop);
  std::uint32_t intern_state(std::vector<std::uint32_t>&& words);
  bool seen(const Item& item);
  void fail(ErrorCode code, std::string message);

  const CompiledGrammar* grammar_;
  std::vector<Row> rows_;
  std::vector<Waiter> waiters_;
  std::vector<Item> kernels_;
  std::unordered_map<std::uint64_t, RowId> scans_;           // row, lexeme -> row
  std::unordered_multimap<std::uint64_t, RowId> by_kernel_;  // hash of the kernel -> row
  std::vector<std::vector<std::uint32_t>> states_;           // loop states by id; words: bits, then counters
  std::unordered_map<std::string, std::uint32_t> state_index_;
  std::unordered_map<std::uint64_t, LoopChoice> choices_;  // loop, state
  std::unordered_map<std::uint64_t, std::pair<std::uint32_t, std::uint32_t>>
      chain_ends_;  // origin, nonterminal -> far end
  std::optional<Error> error_;

  // Scratch of build().
  std::vector<Item> work_, kernel_;
  std::vector<std::uint64_t> chain_;
  bool accepting_ = false;
  std::vector<Item> seen_table_;
  std::vector<std::uint32_t> seen_stamp_;
  std::uint32_t stamp_ = 0;
  std::uint32_t seen_count_ = 0;
  std::vector<std::uint32_t> predicted_stamp_;  // per nonterminal
  std::vector<std::uint32_t> predict_work_;
};

}  // namespace deepinfer::grammar
