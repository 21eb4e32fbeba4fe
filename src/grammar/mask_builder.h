// Joins remembered lexer entries into one mask. Where a lexeme can end inside a token, the parser says which
// row follows, and what is left of those tokens is looked up from there on; each (row, rest) pair is met
// once.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "grammar/compiled_grammar.h"
#include "grammar/row_pool.h"

namespace deepinfer::grammar {

class MaskBuilder {
 public:
  MaskBuilder(const CompiledGrammar& grammar, RowPool& rows, std::uint32_t* mask);

  /// Tokens that begin at a row.
  void add_row(RowId row) { push(row, grammar_.vocabulary()->trie()); }
  /// Tokens that go on inside a lexeme.
  void add_lexeme(RowId row, std::uint32_t lexeme, RegexId state);
  /// kDeadline when the walk passed its limits.
  Status finish();

 private:
  struct Task {
    RowId row;
    TriePtr trie;
  };
  void push(RowId row, const TriePtr& trie);
  void end_inside(RowId row, std::uint32_t lexeme, RegexId state, const LexerEntry& entry,
                  const TriePtr& trie);

  const CompiledGrammar& grammar_;
  RowPool& rows_;
  std::uint32_t* mask_;
  std::int64_t fuel_;
  std::vector<Task> tasks_;  // all of them; those before next_ are done
  std::size_t next_ = 0;
};

}  // namespace deepinfer::grammar
