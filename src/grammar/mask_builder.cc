#include "grammar/mask_builder.h"

#include <fmt/format.h>

namespace deepinfer::grammar {

MaskBuilder::MaskBuilder(const CompiledGrammar& grammar, RowPool& rows, std::uint32_t* mask)
    : grammar_(grammar), rows_(rows), mask_(mask), fuel_(grammar.limits().max_trie_nodes_per_mask) {}

void MaskBuilder::push(RowId row, const TriePtr& trie) {
  for (const Task& t : tasks_)
    if (t.row == row && t.trie->id() == trie->id()) return;
  tasks_.push_back({row, trie});
}

void MaskBuilder::end_inside(RowId row, std::uint32_t lexeme, RegexId state, const LexerEntry& entry,
                             const TriePtr& trie) {
  if (entry.at_end.empty() && entry.after_end.empty()) return;
  const RowId next = rows_.scan(row, lexeme);
  if (next == kNoRow) return;
  entry.at_end.add_to(mask_);
  const ByteSet bytes = entry.after_end & grammar_.lazy().sets[rows_.lexeme_set(next)].first;
  if (bytes.empty()) return;
  const TriePtr rest = grammar_.remainder(state, trie, bytes, fuel_);
  if (rest->node_count() > 0) push(next, rest);
}

void MaskBuilder::add_lexeme(RowId row, std::uint32_t lexeme, RegexId state) {
  const TriePtr& trie = grammar_.vocabulary()->trie();
  const LexerEntryPtr entry = grammar_.entry(state, trie, fuel_);
  entry->inside.add_to(mask_);
  end_inside(row, lexeme, state, *entry, trie);
}

Status MaskBuilder::finish() {
  const std::size_t max_tasks = grammar_.limits().max_rows_per_mask;
  for (; next_ < tasks_.size(); ++next_) {
    if (fuel_ <= 0 || next_ > max_tasks)
      return Error{ErrorCode::kDeadline, "the grammar is too ambiguous: a mask needs too many steps", {}};
    const Task task = tasks_[next_];
    const auto entry = grammar_.set_entry(rows_.lexeme_set(task.row), task.trie, fuel_);
    entry->inside.add_to(mask_);
    for (const auto& [lexeme, part] : entry->ending)
      end_inside(task.row, lexeme, grammar_.lexemes()[lexeme].start, *part, task.trie);
  }
  return {};
}

}  // namespace deepinfer::grammar
