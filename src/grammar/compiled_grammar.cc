#include "grammar/compiled_grammar.h"

#include <fmt/format.h>

#include <algorithm>

#include "grammar/lexer_walk.h"
#include "grammar/row_pool.h"

namespace deepinfer::grammar {
namespace {

constexpr std::size_t kLocalCacheBytes = 8u << 20;  // references to shared entries one grammar keeps

}  // namespace

class GrammarCompiler {
 public:
  GrammarCompiler(GrammarBuilder&& builder, VocabularyPtr vocabulary, const CancelFlag* cancel)
      : builder_(std::move(builder)), cancel_(cancel), out_(new CompiledGrammar) {
    out_->vocabulary_ = std::move(vocabulary);
    out_->limits_ = builder_.limits();
  }

  Result<GrammarPtr> run() {
    if (builder_.error()) return *builder_.error();
    if (builder_.regex().exceeded())
      return Error{
          ErrorCode::kDeadline, "the grammar's regular expressions are too large or too deeply nested", {}};
    if (!builder_.start()) return invalid_argument("the grammar has no start symbol");
    DI_TRY(find_productive());
    DI_TRY(find_nullable());
    if (!productive(*builder_.start())) return invalid_argument("the grammar matches nothing");
    find_reachable();
    DI_TRY(lay_out());
    out_->lazy_ = std::make_unique<CompiledGrammar::Lazy>(builder_.take_regex());
    // Matchers rely on a first row: a grammar whose first row passes a limit is an error here.
    RowPool rows(*out_);
    const RowId first = rows.first_row();
    if (rows.error()) return *rows.error();
    if (out_->lazy_->regex.exceeded())
      return Error{ErrorCode::kDeadline, "the grammar's regular expressions are too large", {}};
    if (first == kNoRow) return invalid_argument("the grammar matches nothing");
    return GrammarPtr(std::move(out_));
  }

 private:
  using Kind = Symbol::Kind;
  using Dot = CompiledGrammar::Dot;

  Status cancelled() const {
    if (cancel_ != nullptr && cancel_->load(std::memory_order_relaxed))
      return Error{ErrorCode::kCancelled, "compiling the grammar was cancelled", {}};
    return {};
  }

  bool productive(Symbol s) const {
    switch (s.kind) {
      case Kind::kLexeme:
        return lexeme_productive_[s.id];
      case Kind::kNonterminal:
        return nonterminal_productive_[s.id];
      case Kind::kLoop:
        return loop_productive_[s.id];
    }
    return false;
  }

  bool nullable(Symbol s) const {
    switch (s.kind) {
      case Kind::kLexeme:
        return false;
      case Kind::kNonterminal:
        return nonterminal_nullable_[s.id];
      case Kind::kLoop:
        return loop_nullable_[s.id];
    }
    return false;
  }

  static bool exits_at_once(const GrammarBuilder::LoopEntry& entry) {
    if (entry.plain) return entry.min == 0;
    const LoopGuard& g = entry.loop.exit;
    if (!g.bits_set.empty()) return false;
    for (const auto& clause : g.clauses)
      if (std::none_of(clause.begin(), clause.end(), [](BitLiteral l) { return !l.value; })) return false;
    return std::all_of(g.counters.begin(), g.counters.end(),
                       [](const CounterRange& r) { return r.minimum == 0; });
  }

  // Calls back for every nonterminal and loop whose symbols changed, until nothing changes: a worklist over
  // "who uses me".
  template <class Test>
  Status fixpoint(std::vector<char>& nonterminals, std::vector<char>& loops, Test test_loop,
                  bool need_all_from_lexemes) {
    const auto& ns = builder_.nonterminals();
    const auto& ls = builder_.loops();
    const auto holds = [&](Symbol s) {
      if (s.kind == Kind::kLexeme) return need_all_from_lexemes && lexeme_productive_[s.id];
      return s.kind == Kind::kNonterminal ? nonterminals[s.id] != 0 : loops[s.id] != 0;
    };
    // users[x]: nonterminals (even) and loops (odd) to look at again when x turns true.
    std::vector<std::vector<std::uint32_t>> n_users(ns.size()), l_users(ls.size());
    const auto note = [&](Symbol s, std::uint32_t user) {
      if (s.kind == Kind::kNonterminal) n_users[s.id].push_back(user);
      if (s.kind == Kind::kLoop) l_users[s.id].push_back(user);
    };
    std::vector<std::uint32_t> work;
    for (std::uint32_t n = 0; n < ns.size(); ++n) {
      for (const auto& p : ns[n].productions)
        for (Symbol s : p.rhs) note(s, n * 2);
      work.push_back(n * 2);
    }
    for (std::uint32_t l = 0; l < ls.size(); ++l) {
      for (const LoopArm& a : ls[l].loop.arms) note(a.body, l * 2 + 1);
      work.push_back(l * 2 + 1);
    }
    while (!work.empty()) {
      if ((work.size() & 1023) == 0) DI_TRY(cancelled());
      const std::uint32_t item = work.back();
      work.pop_back();
      const std::uint32_t id = item / 2;
      if (item % 2 == 0) {
        if (nonterminals[id]) continue;
        for (const auto& p : ns[id].productions) {
          if (std::all_of(p.rhs.begin(), p.rhs.end(), holds)) {
            nonterminals[id] = 1;
            work.insert(work.end(), n_users[id].begin(), n_users[id].end());
            break;
          }
        }
      } else if (!loops[id] && test_loop(ls[id], holds)) {
        loops[id] = 1;
        work.insert(work.end(), l_users[id].begin(), l_users[id].end());
      }
    }
    return {};
  }

  Status find_productive() {
    const auto& lexemes = builder_.lexemes();
    lexeme_productive_.assign(lexemes.size(), 1);
    for (std::size_t i = 0; i < lexemes.size(); ++i) {
      if (lexemes[i].is_token) continue;
      DI_ASSIGN(const bool empty, builder_.regex().is_empty(lexemes[i].regex));
      lexeme_productive_[i] = !empty;
      if ((i & 255) == 0) DI_TRY(cancelled());
    }
    nonterminal_productive_.assign(builder_.nonterminals().size(), 0);
    loop_productive_.assign(builder_.loops().size(), 0);
    return fixpoint(
        nonterminal_productive_, loop_productive_,
        [](const GrammarBuilder::LoopEntry& entry, auto& holds) {
          if (exits_at_once(entry)) return true;
          return std::any_of(entry.loop.arms.begin(), entry.loop.arms.end(),
                             [&](const LoopArm& a) { return holds(a.body); });
        },
        true);
  }

  Status find_nullable() {
    nonterminal_nullable_.assign(builder_.nonterminals().size(), 0);
    loop_nullable_.assign(builder_.loops().size(), 0);
    return fixpoint(
        nonterminal_nullable_, loop_nullable_,
        [](const GrammarBuilder::LoopEntry& entry, auto& holds) {
          if (exits_at_once(entry)) return true;
          return entry.plain && !entry.loop.separator && holds(entry.loop.arms[0].body);
        },
        false);
  }

  void find_reachable() {
    n_number_.assign(builder_.nonterminals().size(), kNone);
    l_number_.assign(builder_.loops().size(), kNone);
    x_number_.assign(builder_.lexemes().size(), kNone);
    std::vector<Symbol> work{*builder_.start()};
    const auto visit = [&](Symbol s) {
      auto& numbers = s.kind == Kind::kLexeme        ? x_number_
                      : s.kind == Kind::kNonterminal ? n_number_
                                                     : l_number_;
      auto& order = s.kind == Kind::kLexeme ? x_order_ : s.kind == Kind::kNonterminal ? n_order_ : l_order_;
      if (numbers[s.id] != kNone) return;
      numbers[s.id] = static_cast<std::uint32_t>(order.size());
      order.push_back(s.id);
      if (s.kind != Kind::kLexeme) work.push_back(s);
    };
    const Symbol start = *builder_.start();
    work.clear();
    visit(start);
    while (!work.empty()) {
      const Symbol s = work.back();
      work.pop_back();
      if (s.kind == Kind::kNonterminal) {
        for (const auto& p : builder_.nonterminals()[s.id].productions)
          if (all_productive(p.rhs))
            for (Symbol x : p.rhs) visit(x);
      } else {
        const auto& entry = builder_.loops()[s.id];
        for (const LoopArm& a : entry.loop.arms)
          if (productive(a.body)) visit(a.body);
        if (entry.loop.separator && productive(*entry.loop.separator)) visit(*entry.loop.separator);
      }
    }
  }

  bool all_productive(const std::vector<Symbol>& rhs) const {
    return std::all_of(rhs.begin(), rhs.end(), [this](Symbol s) { return productive(s); });
  }

  // A loop body or separator: a lexeme or a nonterminal; a loop inside a loop gets a nonterminal of its own.
  std::pair<bool, std::uint32_t> body(Symbol s) {
    if (s.kind == Kind::kLexeme) return {true, x_number_[s.id]};
    if (s.kind == Kind::kNonterminal) return {false, n_number_[s.id]};
    const auto [it, fresh] =
        loop_wrappers_.try_emplace(s.id, static_cast<std::uint32_t>(n_order_.size() + loop_wrappers_.size()));
    return {false, it->second};
  }

  void emit(Symbol s) {
    switch (s.kind) {
      case Kind::kLexeme:
        out_->dots_.push_back({Dot::Kind::kLexeme, x_number_[s.id]});
        break;
      case Kind::kNonterminal:
        out_->dots_.push_back({Dot::Kind::kNonterminal, n_number_[s.id]});
        break;
      case Kind::kLoop:
        for (auto k :
             {Dot::Kind::kLoopEnter, Dot::Kind::kLoopArm, Dot::Kind::kLoopNext, Dot::Kind::kLoopSeparator})
          out_->dots_.push_back({k, l_number_[s.id]});
        break;
    }
  }

  Status lay_out() {
    for (std::uint32_t id : x_order_) {
      const auto& l = builder_.lexemes()[id];
      out_->lexemes_.push_back(
          {l.regex, l.is_token, l.except, l.tokens, l.options.max_tokens, l.options.name});
      for (TokenId t : l.tokens)
        if (t < 0 || static_cast<std::size_t>(t) >= out_->vocabulary_->token_count())
          return invalid_argument(fmt::format("token {} is not in the vocabulary", t));
    }
    for (std::uint32_t id : l_order_) {
      const auto& entry = builder_.loops()[id];
      CompiledGrammar::LoopTable t{};
      t.plain = entry.plain;
      t.min = entry.min;
      t.max = entry.max;
      t.exit = entry.loop.exit;
      t.nullable = loop_nullable_[id] != 0;
      t.bit_count = entry.loop.bit_count;
      t.counter_caps = entry.loop.counter_caps;
      for (const LoopArm& a : entry.loop.arms) {
        if (!productive(a.body)) continue;
        if (nullable(a.body)) {
          if (!entry.plain || entry.loop.separator)
            return invalid_argument("the body of a loop with a separator or a state can be empty");
          t.min = 0;  // empty iterations make up for missing ones
        }
        const auto [is_lexeme, number] = body(a.body);
        DI_TRY(check(a.guard, t));
        DI_TRY(check(a.update, t));
        t.arms.push_back({is_lexeme, number, a.guard, a.update});
      }
      DI_TRY(check(t.exit, t));
      if (entry.loop.separator) {
        if (!productive(*entry.loop.separator)) {
          t.max = std::min<std::uint32_t>(t.max, 1);
        } else {
          if (nullable(*entry.loop.separator))
            return invalid_argument("the separator of a loop can be empty");
          t.has_separator = true;
          std::tie(t.separator_is_lexeme, t.separator) = body(*entry.loop.separator);
        }
      }
      out_->loops_.push_back(std::move(t));
    }
    for (std::uint32_t id : n_order_) {
      CompiledGrammar::Nonterminal n{static_cast<std::uint32_t>(out_->production_starts_.size()), 0,
                                     nonterminal_nullable_[id] != 0};
      for (const auto& p : builder_.nonterminals()[id].productions) {
        if (!all_productive(p.rhs)) continue;
        out_->production_starts_.push_back(static_cast<std::uint32_t>(out_->dots_.size()));
        ++n.production_count;
        for (Symbol s : p.rhs) emit(s);
        out_->dots_.push_back({Dot::Kind::kEnd, n_number_[id]});
      }
      out_->nonterminals_.push_back(n);
      if ((out_->nonterminals_.size() & 1023) == 0) DI_TRY(cancelled());
    }
    std::vector<std::pair<std::uint32_t, std::uint32_t>> wrappers;  // number, loop
    for (const auto& [loop, number] : loop_wrappers_) wrappers.emplace_back(number, loop);
    std::sort(wrappers.begin(), wrappers.end());
    for (const auto& [number, loop] : wrappers) {
      out_->nonterminals_.push_back(
          {static_cast<std::uint32_t>(out_->production_starts_.size()), 1, loop_nullable_[loop] != 0});
      out_->production_starts_.push_back(static_cast<std::uint32_t>(out_->dots_.size()));
      emit({Kind::kLoop, loop});
      out_->dots_.push_back({Dot::Kind::kEnd, number});
    }
    out_->start_dot_ = static_cast<std::uint32_t>(out_->dots_.size());
    emit(*builder_.start());
    out_->dots_.push_back({Dot::Kind::kEnd, kNone});
    out_->start_nullable_ = nullable(*builder_.start());
    return {};
  }

  static Status check(const LoopGuard& g, const CompiledGrammar::LoopTable& t) {
    const auto bad_bit = [&](std::uint32_t b) { return b >= t.bit_count; };
    bool bad = std::any_of(g.bits_set.begin(), g.bits_set.end(), bad_bit) ||
               std::any_of(g.bits_clear.begin(), g.bits_clear.end(), bad_bit);
    for (const auto& clause : g.clauses)
      for (BitLiteral l : clause) bad = bad || bad_bit(l.bit);
    for (const CounterRange& r : g.counters) bad = bad || r.counter >= t.counter_caps.size();
    if (bad) return invalid_argument("a loop guard names a bit or counter that the loop does not have");
    return {};
  }

  static Status check(const LoopUpdate& u, const CompiledGrammar::LoopTable& t) {
    bool bad = false;
    for (std::uint32_t b : u.set_bits) bad = bad || b >= t.bit_count;
    for (std::uint32_t b : u.clear_bits) bad = bad || b >= t.bit_count;
    for (const auto& [c, v] : u.assign) bad = bad || c >= t.counter_caps.size();
    for (const auto& [c, v] : u.add) bad = bad || c >= t.counter_caps.size();
    if (bad) return invalid_argument("a loop update names a bit or counter that the loop does not have");
    return {};
  }

  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  GrammarBuilder builder_;
  const CancelFlag* cancel_;
  std::unique_ptr<CompiledGrammar> out_;
  std::vector<char> lexeme_productive_, nonterminal_productive_, loop_productive_;
  std::vector<char> nonterminal_nullable_, loop_nullable_;
  std::vector<std::uint32_t> n_number_, l_number_, x_number_;  // old id -> new id
  std::vector<std::uint32_t> n_order_, l_order_, x_order_;     // new id -> old id
  std::unordered_map<std::uint32_t, std::uint32_t> loop_wrappers_;
};

Result<GrammarPtr> compile(GrammarBuilder&& builder, VocabularyPtr vocabulary, const CancelFlag* cancel) {
  DI_CHECK(vocabulary != nullptr, "compile() needs a vocabulary");
  return GrammarCompiler(std::move(builder), std::move(vocabulary), cancel).run();
}

std::uint32_t CompiledGrammar::intern_set(LexemeSet set) const {
  std::string key(reinterpret_cast<const char*>(set.lexemes.data()), set.lexemes.size() * 4);
  key.append(1, '|');
  key.append(reinterpret_cast<const char*>(set.tokens.data()), set.tokens.size() * 4);
  const auto found = lazy_->set_index.find(key);
  if (found != lazy_->set_index.end()) return found->second;
  for (std::uint32_t l : set.lexemes) set.first |= lazy_->regex.first_bytes(lexemes_[l].start);
  const auto id = static_cast<std::uint32_t>(lazy_->sets.size());
  lazy_->sets.push_back(std::move(set));
  lazy_->set_index.emplace(std::move(key), id);
  return id;
}

void CompiledGrammar::charge(std::size_t bytes) const {
  lazy_->cached_bytes += bytes;
  if (lazy_->cached_bytes <= kLocalCacheBytes) return;
  lazy_->entries.clear();
  lazy_->remainders.clear();
  lazy_->set_entries.clear();
  lazy_->cached_bytes = 0;
}

LexerEntryPtr CompiledGrammar::entry(RegexId state, const TriePtr& trie, std::int64_t& fuel) const {
  const Lazy::PairKey key{state, trie->id()};
  if (const auto it = lazy_->entries.find(key); it != lazy_->entries.end()) return it->second;
  MaskStore& store = vocabulary_->mask_store();
  const MaskStore::Key shared{lazy_->regex.hash(state), trie->id(), {}};
  LexerEntryPtr made = store.find_entry(shared);
  if (made == nullptr) {
    made = LexerWalk(lazy_->regex, *vocabulary_, fuel).entry(state, *trie);
    if (!lazy_->regex.exceeded() && !lazy_->regex.out_of_fuel()) store.put_entry(shared, made);
  }
  charge(made->memory_bytes() + 64);
  lazy_->entries.emplace(key, made);
  return made;
}

TriePtr CompiledGrammar::remainder(RegexId state, const TriePtr& trie, const ByteSet& bytes,
                                   std::int64_t& fuel) const {
  const Lazy::RemainderKey key{{state, trie->id()}, bytes};
  if (const auto it = lazy_->remainders.find(key); it != lazy_->remainders.end()) return it->second;
  MaskStore& store = vocabulary_->mask_store();
  const MaskStore::Key shared{lazy_->regex.hash(state), trie->id(), bytes};
  TriePtr made = store.find_remainder(shared);
  if (made == nullptr) {
    made = LexerWalk(lazy_->regex, *vocabulary_, fuel).remainder(state, *trie, bytes);
    if (fuel > 0 && !lazy_->regex.exceeded() && !lazy_->regex.out_of_fuel())
      made = store.put_remainder(shared, made);
  }
  charge(made->memory_bytes() + 96);
  lazy_->remainders.emplace(key, made);
  return made;
}

std::shared_ptr<const CompiledGrammar::Lazy::SetEntry> CompiledGrammar::set_entry(std::uint32_t set,
                                                                                  const TriePtr& trie,
                                                                                  std::int64_t& fuel) const {
  const Lazy::PairKey key{set, trie->id()};
  if (const auto it = lazy_->set_entries.find(key); it != lazy_->set_entries.end()) return it->second;
  auto made = std::make_shared<Lazy::SetEntry>();
  std::vector<LexerEntryPtr> parts;
  std::size_t listed = 0;
  bool masks = false;
  for (std::uint32_t lexeme : lazy_->sets[set].lexemes) {
    const RegexId start = lexemes_[lexeme].start;
    if ((lazy_->regex.first_bytes(start) & trie->first_bytes()).empty()) continue;
    const LexerEntryPtr e = entry(start, trie, fuel);
    listed += e->inside.list.size();
    masks = masks || !e->inside.bits.empty();
    if (!e->at_end.empty() || !e->after_end.empty()) made->ending.emplace_back(lexeme, e);
    parts.push_back(e);
  }
  const std::size_t words = vocabulary_->mask_words();
  if (masks || listed > words / 4) {
    made->inside.bits.assign(words, 0);
    for (const LexerEntryPtr& e : parts) e->inside.add_to(made->inside.bits.data());
  } else {
    for (const LexerEntryPtr& e : parts)
      made->inside.list.insert(made->inside.list.end(), e->inside.list.begin(), e->inside.list.end());
    std::sort(made->inside.list.begin(), made->inside.list.end());
    made->inside.list.erase(std::unique(made->inside.list.begin(), made->inside.list.end()),
                            made->inside.list.end());
    made->inside.list.shrink_to_fit();
  }
  charge(made->inside.memory_bytes() + made->ending.size() * 24 + 96);
  lazy_->set_entries.emplace(key, made);
  return made;
}

std::size_t CompiledGrammar::memory_bytes() const {
  const auto guard = lock();
  std::size_t bytes = sizeof(*this) + dots_.capacity() * sizeof(Dot) +
                      nonterminals_.capacity() * sizeof(Nonterminal) + production_starts_.capacity() * 4 +
                      loops_.capacity() * sizeof(LoopTable) + lexemes_.capacity() * sizeof(LexemeTable);
  for (const LoopTable& l : loops_) {
    bytes += l.arms.capacity() * sizeof(Arm);
    for (const Arm& a : l.arms)
      bytes +=
          (a.guard.bits_set.capacity() + a.guard.bits_clear.capacity() + a.update.set_bits.capacity()) * 4 +
          a.guard.counters.capacity() * sizeof(CounterRange) +
          (a.update.assign.capacity() + a.update.add.capacity()) * 8;
  }
  if (lazy_) {
    bytes += lazy_->regex.memory_bytes();
    for (const LexemeSet& s : lazy_->sets)
      bytes += sizeof(s) + (s.lexemes.capacity() + s.tokens.capacity()) * 8 + 64;
    bytes += (lazy_->entries.size() + lazy_->set_entries.size()) * 64 + lazy_->remainders.size() * 96;
  }
  return bytes;
}

}  // namespace deepinfer::grammar
