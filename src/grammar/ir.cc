#include "grammar/ir.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer::grammar {

GrammarBuilder::GrammarBuilder(const GrammarLimits& limits)
    : limits_(limits), regex_(limits.max_regex_nodes) {}

void GrammarBuilder::fail(Error error) {
  if (!error_) error_ = std::move(error);
}

bool GrammarBuilder::charge(std::size_t symbols) {
  symbol_count_ += symbols;
  if (symbol_count_ <= limits_.max_symbols) return true;
  fail({ErrorCode::kDeadline, fmt::format("the grammar has more than {} symbols", limits_.max_symbols), {}});
  return false;
}

Symbol GrammarBuilder::lexeme(RegexId regex, const LexemeOptions& options) {
  if (regex == kEmptyRegex) return never();
  if (regex == kEpsilonRegex) return epsilon();
  if (regex_.nullable(regex)) {
    const RegexId rest = regex_.minus(regex, kEpsilonRegex);
    return optional(lexeme(rest, options));
  }
  const std::string key = fmt::format("{} {}", regex, options.max_tokens);
  const auto found = lexeme_index_.find(key);
  if (found != lexeme_index_.end()) return found->second;
  charge(1);
  const Symbol symbol{Symbol::Kind::kLexeme, static_cast<std::uint32_t>(lexemes_.size())};
  lexemes_.push_back({regex, false, false, {}, options});
  lexeme_index_.emplace(key, symbol);
  return symbol;
}

Symbol GrammarBuilder::tokens(std::span<const TokenId> ids) {
  if (ids.empty()) return never();
  charge(1);
  const Symbol symbol{Symbol::Kind::kLexeme, static_cast<std::uint32_t>(lexemes_.size())};
  lexemes_.push_back({kEmptyRegex, true, false, {ids.begin(), ids.end()}, {}});
  std::sort(lexemes_.back().tokens.begin(), lexemes_.back().tokens.end());
  return symbol;
}

Symbol GrammarBuilder::tokens_except(std::span<const TokenId> ids) {
  charge(1);
  const Symbol symbol{Symbol::Kind::kLexeme, static_cast<std::uint32_t>(lexemes_.size())};
  lexemes_.push_back({kEmptyRegex, true, true, {ids.begin(), ids.end()}, {}});
  std::sort(lexemes_.back().tokens.begin(), lexemes_.back().tokens.end());
  return symbol;
}

Symbol GrammarBuilder::nonterminal(std::string name) {
  charge(1);
  nonterminals_.push_back({std::move(name), {}});
  return {Symbol::Kind::kNonterminal, static_cast<std::uint32_t>(nonterminals_.size() - 1)};
}

void GrammarBuilder::add_production(Symbol nonterminal, std::span<const Symbol> rhs) {
  DI_CHECK(nonterminal.kind == Symbol::Kind::kNonterminal && nonterminal.id < nonterminals_.size());
  if (!charge(rhs.size() + 1)) return;
  nonterminals_[nonterminal.id].productions.push_back({{rhs.begin(), rhs.end()}});
}

Symbol GrammarBuilder::epsilon() {
  if (!epsilon_) {
    epsilon_ = nonterminal("empty");
    add_production(*epsilon_, {});
  }
  return *epsilon_;
}

Symbol GrammarBuilder::never() {
  if (!never_) never_ = nonterminal("never");
  return *never_;
}

Symbol GrammarBuilder::sequence(std::span<const Symbol> parts) {
  if (parts.empty()) return epsilon();
  if (parts.size() == 1) return parts[0];
  const Symbol n = nonterminal();
  add_production(n, parts);
  return n;
}

Symbol GrammarBuilder::alternatives(std::span<const Symbol> parts) {
  if (parts.empty()) return never();
  if (parts.size() == 1) return parts[0];
  const Symbol n = nonterminal();
  for (Symbol part : parts) add_production(n, {part});
  return n;
}

Symbol GrammarBuilder::optional(Symbol x) {
  const Symbol n = nonterminal();
  add_production(n, {});
  add_production(n, {x});
  return n;
}

Symbol GrammarBuilder::repeat(Symbol x, std::uint32_t min, std::uint32_t max,
                              std::optional<Symbol> separator) {
  DI_CHECK(min <= max, "repetition bounds out of order");
  if (max == 0) return epsilon();
  if (min == 1 && max == 1) return x;
  if (min == 0 && max == 1) return optional(x);
  charge(1);
  LoopEntry entry;
  entry.loop.arms.push_back({x, {}, {}});
  entry.loop.separator = separator;
  entry.plain = true;
  entry.min = min;
  entry.max = max;
  loops_.push_back(std::move(entry));
  return {Symbol::Kind::kLoop, static_cast<std::uint32_t>(loops_.size() - 1)};
}

Symbol GrammarBuilder::loop(Loop loop) {
  charge(loop.arms.size() + 1);
  LoopEntry entry;
  entry.loop = std::move(loop);
  loops_.push_back(std::move(entry));
  return {Symbol::Kind::kLoop, static_cast<std::uint32_t>(loops_.size() - 1)};
}

}  // namespace deepinfer::grammar
