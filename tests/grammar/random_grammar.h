// Random grammars with a reference recogniser that follows the definitions (memoised spans, no cleverness),
// and random vocabularies. For property tests.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "grammar/compiled_grammar.h"
#include "grammar/ir.h"
#include "grammar/vocabulary.h"

namespace deepinfer::grammar::testing {

struct RandomGrammar {
  std::unique_ptr<GrammarBuilder> builder = std::make_unique<GrammarBuilder>();

  explicit RandomGrammar(std::mt19937& rng) : rng_(rng) {
    const int count = 2 + pick(4);
    for (int i = 0; i < count; ++i) nonterminals_.push_back(builder->nonterminal("n" + std::to_string(i)));
    for (int i = 0; i < 4; ++i) lexemes_.push_back(random_lexeme());
    for (Symbol n : nonterminals_) {
      const int productions = 1 + pick(3);
      for (int p = 0; p < productions; ++p) {
        std::vector<Symbol> rhs;
        for (int k = pick(4); k > 0; --k) rhs.push_back(random_symbol(2));
        builder->add_production(n, rhs);
      }
    }
    builder->set_start(nonterminals_[0]);
  }

  int pick(int n) { return static_cast<int>(rng_() % static_cast<unsigned>(n)); }

 private:
  Symbol random_lexeme() {
    RegexPool& r = builder->regex();
    const auto letter = [&] { return r.byte(static_cast<std::uint8_t>("abc,\" \\"[pick(7)])); };
    RegexId x = kEpsilonRegex;
    switch (pick(7)) {
      case 0:
        x = r.concat(letter(), letter());
        break;
      case 1:
        x = r.plus(r.bytes(ByteSet::any_of("ab")));
        break;
      case 2:
        x = r.concat({r.byte('"'),
                      r.repeat(r.bytes(ByteSet::any_of("abc ,")), 0, static_cast<std::uint32_t>(pick(5))),
                      r.byte('"')});
        break;
      case 3:
        x = r.concat(
            {r.byte('"'), r.minus(r.star(r.bytes(ByteSet::any_of("abc"))), r.literal("ab")), r.byte('"')});
        break;
      case 4:
        x = r.alt({r.literal("abc"), r.literal("ab"), letter()});
        break;
      case 5:
        x = r.repeat(r.any_char(), 1, 1 + static_cast<std::uint32_t>(pick(4)));
        break;
      default:
        x = letter();
        break;
    }
    return builder->lexeme(x);
  }

  Symbol random_symbol(int depth) {
    const int kind = depth == 0 ? pick(2) : pick(8);
    if (kind <= 2) return lexemes_[static_cast<std::size_t>(pick(static_cast<int>(lexemes_.size())))];
    if (kind <= 4)
      return nonterminals_[static_cast<std::size_t>(pick(static_cast<int>(nonterminals_.size())))];
    if (kind == 5) {
      const auto min = static_cast<std::uint32_t>(pick(3));
      const std::uint32_t max = pick(2) ? kUnbounded : min + static_cast<std::uint32_t>(pick(3));
      return builder->repeat(random_symbol(depth - 1), min, std::max(max, min));
    }
    if (kind == 6) {
      const auto min = static_cast<std::uint32_t>(pick(2));
      return builder->repeat(lexemes_[0], min, min + 1 + static_cast<std::uint32_t>(pick(3)), lexemes_[1]);
    }
    // Any order, each arm once, the first one required; or ordered by a counter.
    Loop loop;
    const int arms = 2 + pick(2);
    const bool ordered = pick(2) == 1;
    loop.bit_count = ordered ? 0 : static_cast<std::uint32_t>(arms);
    if (ordered) loop.counter_caps = {8};
    for (int a = 0; a < arms; ++a) {
      LoopArm arm;
      arm.body = lexemes_[static_cast<std::size_t>(pick(4))];
      const auto bit = static_cast<std::uint32_t>(a);
      if (ordered) {
        arm.guard.counters = {{0, a > 1 ? 1u : 0u, bit}};
        arm.update.assign = {{0, bit + 1}};
      } else {
        arm.guard.bits_clear = {bit};
        arm.update.set_bits = {bit};
      }
      loop.arms.push_back(arm);
    }
    if (ordered) {
      loop.exit.counters = {{0, 1, kUnbounded}};
    } else {
      loop.exit.bits_set = {0};
      if (pick(2)) loop.exit.clauses = {{{1, false}, {0, true}}};
    }
    if (pick(2)) loop.separator = lexemes_[static_cast<std::size_t>(pick(4))];
    return builder->loop(loop);
  }

  std::mt19937& rng_;
  std::vector<Symbol> nonterminals_, lexemes_;
};

// Which spans of a text a symbol derives, by iterating to a fixed point.
class Reference {
 public:
  Reference(GrammarBuilder& builder, std::string text)
      : b_(builder), text_(std::move(text)), n_(text_.size()) {
    const auto spans = (n_ + 1) * (n_ + 1);
    lexeme_.resize(b_.lexemes().size());
    for (std::size_t l = 0; l < lexeme_.size(); ++l) {
      lexeme_[l].assign(spans, false);
      for (std::size_t i = 0; i <= n_; ++i)
        for (std::size_t j = i + 1; j <= n_; ++j)
          lexeme_[l][at(i, j)] =
              b_.regex().matches(b_.lexemes()[l].regex, std::string_view(text_).substr(i, j - i));
    }
    nonterminal_.assign(b_.nonterminals().size(), std::vector<bool>(spans, false));
    loop_.assign(b_.loops().size(), std::vector<bool>(spans, false));
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = 0; i <= n_; ++i) {
        for (std::size_t n = 0; n < nonterminal_.size(); ++n)
          for (const auto& p : b_.nonterminals()[n].productions) {
            std::set<std::size_t> ends{i};
            for (Symbol s : p.rhs) ends = after(ends, s);
            for (std::size_t j : ends) changed = mark(nonterminal_[n], i, j) || changed;
          }
        for (std::size_t l = 0; l < loop_.size(); ++l)
          for (std::size_t j : loop_ends(b_.loops()[l], i)) changed = mark(loop_[l], i, j) || changed;
      }
    }
  }

  bool matches() { return holds(*b_.start(), 0, n_); }

 private:
  std::size_t at(std::size_t i, std::size_t j) const { return i * (n_ + 1) + j; }
  bool mark(std::vector<bool>& t, std::size_t i, std::size_t j) {
    if (t[at(i, j)]) return false;
    t[at(i, j)] = true;
    return true;
  }
  bool holds(Symbol s, std::size_t i, std::size_t j) const {
    switch (s.kind) {
      case Symbol::Kind::kLexeme:
        return lexeme_[s.id][at(i, j)];
      case Symbol::Kind::kNonterminal:
        return nonterminal_[s.id][at(i, j)];
      case Symbol::Kind::kLoop:
        return loop_[s.id][at(i, j)];
    }
    return false;
  }
  std::set<std::size_t> after(const std::set<std::size_t>& begins, Symbol s) const {
    std::set<std::size_t> out;
    for (std::size_t i : begins)
      for (std::size_t j = i; j <= n_; ++j)
        if (holds(s, i, j)) out.insert(j);
    return out;
  }

  using State = std::vector<std::uint32_t>;  // bits one by one, then counters; for plain loops one counter
  static bool guard_holds(const LoopGuard& g, const Loop& loop, const State& s) {
    for (auto b : g.bits_set)
      if (!s[b]) return false;
    for (auto b : g.bits_clear)
      if (s[b]) return false;
    for (const auto& clause : g.clauses) {
      bool any = false;
      for (BitLiteral l : clause) any = any || (s[l.bit] != 0) == l.value;
      if (!any) return false;
    }
    for (const auto& r : g.counters) {
      const auto v = s[loop.bit_count + r.counter];
      if (v < r.minimum || v > r.maximum) return false;
    }
    return true;
  }

  std::set<std::size_t> loop_ends(const GrammarBuilder::LoopEntry& e, std::size_t i) const {
    const Loop& loop = e.loop;
    std::set<std::size_t> ends;
    std::set<std::pair<std::size_t, State>> seen;
    std::vector<std::pair<std::size_t, State>> work{
        {i, State(e.plain ? 1 : loop.bit_count + loop.counter_caps.size(), 0)}};
    bool first = true;
    while (!work.empty()) {
      auto [pos, state] = work.back();
      work.pop_back();
      const bool exit = e.plain ? state[0] >= e.min : guard_holds(loop.exit, loop, state);
      if (exit) ends.insert(pos);
      std::set<std::size_t> begins{pos};
      if (loop.separator && !first) begins = after(begins, *loop.separator);
      first = false;
      for (const LoopArm& arm : loop.arms) {
        if (e.plain ? state[0] >= e.max : !guard_holds(arm.guard, loop, state)) continue;
        State next = state;
        if (e.plain) {
          next[0] = std::min(next[0] + 1, std::max(e.min, e.max == kUnbounded ? e.min : e.max));
        } else {
          for (auto b : arm.update.set_bits) next[b] = 1;
          for (auto b : arm.update.clear_bits) next[b] = 0;
          for (auto [c, v] : arm.update.assign) next[loop.bit_count + c] = std::min(v, loop.counter_caps[c]);
          for (auto [c, v] : arm.update.add)
            next[loop.bit_count + c] = std::min(next[loop.bit_count + c] + v, loop.counter_caps[c]);
        }
        for (std::size_t j : after(begins, arm.body))
          if (seen.insert({j, next}).second) work.push_back({j, next});
      }
    }
    return ends;
  }

  GrammarBuilder& b_;
  std::string text_;
  std::size_t n_;
  std::vector<std::vector<bool>> lexeme_, nonterminal_, loop_;
};

// `count` tokens: all single bytes of a small alphabet, then random strings over it; the last two ids are
// EOS.
inline VocabularyPtr random_vocabulary(std::mt19937& rng, std::size_t count) {
  static const std::string alphabet = "abc,\" \\";
  std::set<std::string> texts;
  for (char c : alphabet) texts.insert(std::string(1, c));
  for (const char* extra : {"\xC3", "\xA9", "\xC3\xA9", "\xE4\xB8", "\xAD", "\n", "\xFF"})
    texts.insert(extra);
  while (texts.size() < count - 2) {
    std::string s;
    for (unsigned i = 1 + rng() % 7; i > 0; --i) {
      if (rng() % 16 == 0) {
        s += rng() % 2 ? "\xC3\xA9" : "\xE4\xB8\xAD";
      } else {
        s.push_back(alphabet[rng() % alphabet.size()]);
      }
    }
    texts.insert(s);
  }
  Vocabulary::Options o;
  o.tokens.assign(texts.begin(), texts.end());
  std::shuffle(o.tokens.begin(), o.tokens.end(), rng);
  o.eos_tokens = {static_cast<TokenId>(o.tokens.size()), static_cast<TokenId>(o.tokens.size() + 1)};
  o.tokens.push_back("<end>");
  o.tokens.push_back("<stop>");
  o.logits_width = o.tokens.size() + 30;
  return std::move(Vocabulary::create(std::move(o))).value();
}

}  // namespace deepinfer::grammar::testing
