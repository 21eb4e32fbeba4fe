#include "grammar/row_pool.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <tuple>

namespace deepinfer::grammar {

using Dot = CompiledGrammar::Dot;

RowPool::RowPool(const CompiledGrammar& grammar) : grammar_(&grammar) {
  seen_table_.resize(64);
  seen_stamp_.resize(64, 0);
  predicted_stamp_.resize(grammar.nonterminals().size(), 0);
  states_.emplace_back();  // state 0: no loop
}

void RowPool::fail(ErrorCode code, std::string message) {
  if (!error_) error_ = Error{code, std::move(message), {}};
}

// True when the item was met before in this build; notes it otherwise.
bool RowPool::seen(const Item& item) {
  if (seen_count_ * 2 >= seen_table_.size()) {
    std::vector<Item> old;
    for (std::size_t i = 0; i < seen_table_.size(); ++i)
      if (seen_stamp_[i] == stamp_) old.push_back(seen_table_[i]);
    seen_table_.assign(seen_table_.size() * 2, {});
    seen_stamp_.assign(seen_table_.size(), 0);
    seen_count_ = 0;
    for (const Item& i : old) seen(i);
  }
  const std::size_t mask = seen_table_.size() - 1;
  std::uint64_t h = (std::uint64_t{item.dot} << 32 | item.origin) * 0x9E3779B97F4A7C15ull +
                    item.state * 0xD6E8FEB86659FD93ull;
  h ^= h >> 32;
  for (std::size_t slot = h & mask;; slot = (slot + 1) & mask) {
    if (seen_stamp_[slot] != stamp_) {
      seen_stamp_[slot] = stamp_;
      seen_table_[slot] = item;
      ++seen_count_;
      return false;
    }
    if (seen_table_[slot] == item) return true;
  }
}

RowId RowPool::first_row() {
  work_.clear();
  ++stamp_;
  seen_count_ = 0;
  accepting_ = false;
  kernel_.clear();
  // The start item has no origin; kSelf serves, since its end is recognised by kRootEnd.
  work_.push_back({grammar_->start_dot(), kSelf, 0});
  return build();
}

RowId RowPool::scan(RowId row, std::uint32_t lexeme) {
  const std::uint64_t key = (std::uint64_t{row} << 32) | lexeme;
  if (const auto it = scans_.find(key); it != scans_.end()) return it->second;
  const End end{row, lexeme};
  const RowId next = scan(std::span(&end, 1));
  if (!error_) scans_.emplace(key, next);
  return next;
}

RowId RowPool::scan(std::span<const End> ends) {
  work_.clear();
  ++stamp_;
  seen_count_ = 0;
  accepting_ = false;
  kernel_.clear();
  for (const End& e : ends)
    for (const Waiter& w : waiting(e.row, e.lexeme * 2 + 1)) advance(w, e.row);
  if (work_.empty()) return kNoRow;
  return build();
}

std::span<const RowPool::Waiter> RowPool::waiting(RowId row, std::uint32_t symbol) const {
  const Row& r = rows_[row];
  const Waiter* begin = waiters_.data() + r.waiters;
  const Waiter* end = begin + r.waiter_count;
  const auto range = std::equal_range(begin, end, Waiter{symbol, 0, 0, 0, 0},
                                      [](const Waiter& a, const Waiter& b) { return a.symbol < b.symbol; });
  return {range.first, range.second};
}

// The item behind the symbol that `w` waited for in `row`.
void RowPool::advance(const Waiter& w, RowId row) {
  const std::uint32_t origin = w.origin == kSelf ? row : w.origin;
  const Dot& dot = grammar_->dots()[w.dot];
  switch (dot.kind) {
    case Dot::Kind::kLoopArm:
      work_.push_back({w.dot + 1, origin, after_arm(dot.id, w.state, w.arm)});
      break;
    case Dot::Kind::kLoopSeparator:
      work_.push_back({w.dot - 2, origin, w.state});
      break;
    default:
      work_.push_back({w.dot + 1, origin, 0});
      break;
  }
}

// Adds items until nothing is new: ends complete their nonterminal, loops unfold, empty symbols are passed.
// What waits for a symbol becomes the kernel.
void RowPool::add_kernel(Item item) {
  if (seen(item)) return;
  const Dot& dot = grammar_->dots()[item.dot];
  switch (dot.kind) {
    case Dot::Kind::kEnd:
      if (dot.id == kRootEnd) {
        accepting_ = true;
      } else if (item.origin != kSelf) {
        complete(dot.id, item.origin);
      }
      return;
    case Dot::Kind::kLexeme:
      kernel_.push_back(item);
      return;
    case Dot::Kind::kNonterminal:
      kernel_.push_back(item);
      if (grammar_->nonterminals()[dot.id].nullable) work_.push_back({item.dot + 1, item.origin, 0});
      return;
    case Dot::Kind::kLoopEnter: {
      work_.push_back({item.dot + 1, item.origin, first_state(dot.id)});
      if (grammar_->loops()[dot.id].nullable) work_.push_back({item.dot + 4, item.origin, 0});
      return;
    }
    case Dot::Kind::kLoopArm:
      if (!choice(dot.id, item.state).arms.empty()) kernel_.push_back(item);
      return;
    case Dot::Kind::kLoopNext: {
      const CompiledGrammar::LoopTable& loop = grammar_->loops()[dot.id];
      const LoopChoice& c = choice(dot.id, item.state);
      if (c.may_exit) work_.push_back({item.dot + 2, item.origin, 0});
      if (c.arms.empty()) return;
      if (loop.has_separator) {
        work_.push_back({item.dot + 1, item.origin, item.state});
      } else {
        work_.push_back({item.dot - 1, item.origin, item.state});
      }
      return;
    }
    case Dot::Kind::kLoopSeparator:
      kernel_.push_back(item);
      return;
  }
}

// A nonterminal ended that had begun at `origin`: whatever waits for it there goes on. Where the only thing
// that waits is itself at its end then (right recursion), the chain is followed at once and its far end
// remembered, so that a list of n elements costs n and not n squared.
void RowPool::complete(std::uint32_t nonterminal, std::uint32_t origin) {
  chain_.clear();
  while (true) {
    // Several productions of one nonterminal may end at once; one completion serves them all.
    if (seen({kRootEnd, origin, nonterminal})) break;
    const std::uint64_t key = (std::uint64_t{origin} << 32) | nonterminal;
    if (const auto it = chain_ends_.find(key); it != chain_ends_.end()) {
      std::tie(nonterminal, origin) = it->second;
      continue;
    }
    const std::span<const Waiter> waiters = waiting(origin, nonterminal * 2);
    if (waiters.size() == 1 && grammar_->dots()[waiters[0].dot].kind == Dot::Kind::kNonterminal) {
      const Dot& behind = grammar_->dots()[waiters[0].dot + 1];
      if (behind.kind == Dot::Kind::kEnd && behind.id != kRootEnd) {
        chain_.push_back(key);
        nonterminal = behind.id;
        if (waiters[0].origin != kSelf) origin = waiters[0].origin;
        continue;
      }
    }
    for (const Waiter& w : waiters) advance(w, origin);
    break;
  }
  for (std::uint64_t key : chain_) chain_ends_.emplace(key, std::pair(nonterminal, origin));
}

RowId RowPool::build() {
  const std::uint32_t limit = grammar_->limits().max_row_items;
  std::size_t steps = 0;
  while (!work_.empty()) {
    const Item item = work_.back();
    work_.pop_back();
    add_kernel(item);
    if (++steps > std::size_t{limit} * 8 || kernel_.size() > limit) {
      fail(ErrorCode::kDeadline,
           fmt::format("the grammar is too ambiguous: more than {} parser items at one position", limit));
      return kNoRow;
    }
  }
  if (kernel_.empty() && !accepting_) return kNoRow;
  std::sort(kernel_.begin(), kernel_.end());
  const std::uint64_t hash =
      XXH3_64bits_withSeed(kernel_.data(), kernel_.size() * sizeof(Item), accepting_ ? 1 : 0);
  for (auto [it, end] = by_kernel_.equal_range(hash); it != end; ++it) {
    const Row& r = rows_[it->second];
    if (r.accepting == accepting_ && std::equal(kernel_.begin(), kernel_.end(), kernels_.begin() + r.kernel,
                                                kernels_.begin() + r.kernel + r.kernel_count))
      return it->second;
  }
  Row row{};
  row.accepting = accepting_;
  row.kernel = static_cast<std::uint32_t>(kernels_.size());
  row.kernel_count = static_cast<std::uint32_t>(kernel_.size());
  kernels_.insert(kernels_.end(), kernel_.begin(), kernel_.end());
  // Prediction. Items made here have the new row as origin.
  row.waiters = static_cast<std::uint32_t>(waiters_.size());
  std::vector<Waiter> made;
  predict_work_.clear();
  for (const Item& item : kernel_) predict(item.dot, item.state, item.origin, made);
  while (!predict_work_.empty()) {
    const std::uint32_t n = predict_work_.back();
    predict_work_.pop_back();
    const CompiledGrammar::Nonterminal& table = grammar_->nonterminals()[n];
    for (std::uint32_t p = 0; p < table.production_count; ++p)
      predict(grammar_->production_starts()[table.first_production + p], 0, kSelf, made);
    if (made.size() > limit) {
      fail(ErrorCode::kDeadline,
           fmt::format("the grammar is too ambiguous: more than {} parser items at one position", limit));
      return kNoRow;
    }
  }
  std::stable_sort(made.begin(), made.end(),
                   [](const Waiter& a, const Waiter& b) { return a.symbol < b.symbol; });
  row.waiter_count = static_cast<std::uint32_t>(made.size());
  waiters_.insert(waiters_.end(), made.begin(), made.end());
  LexemeSet set;
  for (const Waiter& w : made) {
    if (w.symbol % 2 == 0) continue;
    const std::uint32_t lexeme = w.symbol / 2;
    auto& list = grammar_->lexemes()[lexeme].is_token ? set.tokens : set.lexemes;
    if (list.empty() || list.back() != lexeme) list.push_back(lexeme);
  }
  if (set.lexemes.empty() && set.tokens.empty() && !accepting_) return kNoRow;
  row.set = grammar_->intern_set(std::move(set));
  const auto id = static_cast<RowId>(rows_.size());
  rows_.push_back(row);
  by_kernel_.emplace(hash, id);
  return id;
}

// Lists what an item waits for and predicts it. Kernel items come here unfolded; predicted ones unfold here,
// and since they begin at this row, an end reached without a byte is dropped: the nullable flags cover it.
void RowPool::predict(std::uint32_t at, std::uint32_t state, std::uint32_t origin, std::vector<Waiter>& out) {
  const bool fresh = origin == kSelf;
  const auto wait_for = [&](bool is_lexeme, std::uint32_t id, std::uint32_t arm, std::uint32_t with_state) {
    out.push_back({id * 2 + (is_lexeme ? 1u : 0u), at, origin, with_state, arm});
    if (!is_lexeme) predict_nonterminal(id);
  };
  while (true) {
    const Dot& dot = grammar_->dots()[at];
    switch (dot.kind) {
      case Dot::Kind::kLexeme:
        wait_for(true, dot.id, 0, 0);
        return;
      case Dot::Kind::kNonterminal:
        wait_for(false, dot.id, 0, 0);
        if (!fresh || !grammar_->nonterminals()[dot.id].nullable) return;
        at += 1;
        continue;
      case Dot::Kind::kLoopEnter: {
        const CompiledGrammar::LoopTable& loop = grammar_->loops()[dot.id];
        ++at;
        predict_arms(dot.id, first_state(dot.id), at, origin, out);
        if (!loop.nullable) return;
        at += 3;
        continue;
      }
      case Dot::Kind::kLoopArm:
        predict_arms(dot.id, state, at, origin, out);
        return;
      case Dot::Kind::kLoopSeparator: {
        const CompiledGrammar::LoopTable& loop = grammar_->loops()[dot.id];
        wait_for(loop.separator_is_lexeme, loop.separator, 0, state);
        return;
      }
      case Dot::Kind::kEnd:
      case Dot::Kind::kLoopNext:
        return;  // the latter only behind an arm, so never here
    }
  }
}

void RowPool::predict_arms(std::uint32_t loop, std::uint32_t state, std::uint32_t at, std::uint32_t origin,
                           std::vector<Waiter>& out) {
  const CompiledGrammar::LoopTable& table = grammar_->loops()[loop];
  for (std::uint32_t arm : choice(loop, state).arms) {
    const CompiledGrammar::Arm& a = table.arms[arm];
    out.push_back({a.id * 2 + (a.is_lexeme ? 1u : 0u), at, origin, state, arm});
    if (!a.is_lexeme) predict_nonterminal(a.id);
  }
}

void RowPool::predict_nonterminal(std::uint32_t nonterminal) {
  if (predicted_stamp_[nonterminal] == stamp_) return;
  predicted_stamp_[nonterminal] = stamp_;
  predict_work_.push_back(nonterminal);
}

// ---- Loop states. A plain loop's state is its count; others are interned words.

std::uint32_t RowPool::first_state(std::uint32_t loop) {
  const CompiledGrammar::LoopTable& table = grammar_->loops()[loop];
  if (table.plain) return 0;
  return intern_state(std::vector<std::uint32_t>((table.bit_count + 31) / 32 + table.counter_caps.size(), 0));
}

std::uint32_t RowPool::intern_state(std::vector<std::uint32_t>&& words) {
  const std::string key(reinterpret_cast<const char*>(words.data()), words.size() * 4);
  const auto [it, fresh] = state_index_.try_emplace(key, static_cast<std::uint32_t>(states_.size()));
  if (fresh) states_.push_back(std::move(words));
  return it->second;
}

std::uint32_t RowPool::after_arm(std::uint32_t loop, std::uint32_t state, std::uint32_t arm) {
  const CompiledGrammar::LoopTable& table = grammar_->loops()[loop];
  if (table.plain) {
    // Counts that no bound can tell apart are one state.
    const std::uint32_t cap = table.max == kUnbounded ? table.min : table.max;
    return state < cap ? state + 1 : cap;
  }
  std::vector<std::uint32_t> words = states_[state];
  const std::uint32_t bit_words = (table.bit_count + 31) / 32;
  const LoopUpdate& u = table.arms[arm].update;
  for (std::uint32_t b : u.set_bits) words[b / 32] |= 1u << (b % 32);
  for (std::uint32_t b : u.clear_bits) words[b / 32] &= ~(1u << (b % 32));
  for (const auto& [c, v] : u.assign) words[bit_words + c] = std::min(v, table.counter_caps[c]);
  for (const auto& [c, v] : u.add)
    words[bit_words + c] = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(std::uint64_t{words[bit_words + c]} + v, table.counter_caps[c]));
  return intern_state(std::move(words));
}

bool RowPool::holds(const LoopGuard& guard, const std::vector<std::uint32_t>& words,
                    std::uint32_t bit_words) const {
  const auto bit = [&](std::uint32_t b) { return ((words[b / 32] >> (b % 32)) & 1) != 0; };
  for (std::uint32_t b : guard.bits_set)
    if (!bit(b)) return false;
  for (std::uint32_t b : guard.bits_clear)
    if (bit(b)) return false;
  for (const auto& clause : guard.clauses)
    if (std::none_of(clause.begin(), clause.end(), [&](BitLiteral l) { return bit(l.bit) == l.value; }))
      return false;
  for (const CounterRange& r : guard.counters) {
    const std::uint32_t v = words[bit_words + r.counter];
    if (v < r.minimum || v > r.maximum) return false;
  }
  return true;
}

const RowPool::LoopChoice& RowPool::choice(std::uint32_t loop, std::uint32_t state) {
  const CompiledGrammar::LoopTable& table = grammar_->loops()[loop];
  const std::uint64_t key = (std::uint64_t{loop} << 32) | state;
  const auto [it, fresh] = choices_.try_emplace(key);
  if (!fresh) return it->second;
  LoopChoice& c = it->second;
  if (table.plain) {
    c.may_exit = state >= table.min;
    if (state < table.max && !table.arms.empty()) c.arms.push_back(0);
    return c;
  }
  const std::vector<std::uint32_t>& words = states_[state];
  const std::uint32_t bit_words = (table.bit_count + 31) / 32;
  c.may_exit = holds(table.exit, words, bit_words);
  for (std::uint32_t a = 0; a < table.arms.size(); ++a)
    if (holds(table.arms[a].guard, words, bit_words)) c.arms.push_back(a);
  return c;
}

std::size_t RowPool::memory_bytes() const {
  return rows_.capacity() * sizeof(Row) + waiters_.capacity() * sizeof(Waiter) +
         kernels_.capacity() * sizeof(Item) +
         (scans_.size() + by_kernel_.size() + choices_.size() + chain_ends_.size()) * 48 +
         states_.size() * 64;
}

// A row's origins are always older rows, so one pass from the newest to the oldest marks everything.
void RowPool::compact(std::span<RowId*> roots) {
  std::vector<char> keep(rows_.size(), 0);
  for (RowId* r : roots)
    if (*r != kNoRow) keep[*r] = 1;
  for (std::size_t i = rows_.size(); i-- > 0;) {
    if (!keep[i]) continue;
    for (std::uint32_t k = 0; k < rows_[i].kernel_count; ++k) {
      const std::uint32_t origin = kernels_[rows_[i].kernel + k].origin;
      if (origin != kSelf) keep[origin] = 1;
    }
  }
  std::vector<RowId> number(rows_.size(), kNoRow);
  std::vector<Row> rows;
  std::vector<Waiter> waiters;
  std::vector<Item> kernels;
  std::unordered_multimap<std::uint64_t, RowId> by_kernel;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (!keep[i]) continue;
    Row r = rows_[i];
    number[i] = static_cast<RowId>(rows.size());
    const auto renumber = [&](std::uint32_t origin) { return origin == kSelf ? kSelf : number[origin]; };
    const std::uint32_t first_waiter = static_cast<std::uint32_t>(waiters.size());
    for (std::uint32_t w = 0; w < r.waiter_count; ++w) {
      waiters.push_back(waiters_[r.waiters + w]);
      waiters.back().origin = renumber(waiters.back().origin);
    }
    const std::uint32_t first_item = static_cast<std::uint32_t>(kernels.size());
    for (std::uint32_t k = 0; k < r.kernel_count; ++k) {
      kernels.push_back(kernels_[r.kernel + k]);
      kernels.back().origin = renumber(kernels.back().origin);
    }
    // Renumbering keeps the order of origins, so kernels stay sorted.
    r.waiters = first_waiter;
    r.kernel = first_item;
    const std::uint64_t hash =
        XXH3_64bits_withSeed(kernels.data() + first_item, r.kernel_count * sizeof(Item), r.accepting ? 1 : 0);
    by_kernel.emplace(hash, number[i]);
    rows.push_back(r);
  }
  std::unordered_map<std::uint64_t, RowId> scans;
  for (const auto& [key, target] : scans_) {
    const RowId from = number[key >> 32];
    if (from == kNoRow || (target != kNoRow && number[target] == kNoRow)) continue;
    scans.emplace((std::uint64_t{from} << 32) | (key & 0xFFFFFFFFu),
                  target == kNoRow ? kNoRow : number[target]);
  }
  rows_ = std::move(rows);
  waiters_ = std::move(waiters);
  kernels_ = std::move(kernels);
  by_kernel_ = std::move(by_kernel);
  scans_ = std::move(scans);
  chain_ends_.clear();
  for (RowId* r : roots)
    if (*r != kNoRow) *r = number[*r];
}

}  // namespace deepinfer::grammar
