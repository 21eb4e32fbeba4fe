// Expressions nest no deeper than the parsers allow (they limit nesting), so recursion over one rule's body
// is bounded; chains of rules are followed with worklists.
#include "grammar/rule_set.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer::grammar {
namespace {

// Rules whose expression is nested deeper or is larger stay rules: inlining doubles a rule at each use.
constexpr int kMaxInlineDepth = 120;
constexpr std::uint64_t kMaxInlineWeight = 10'000;
constexpr std::uint64_t kMaxTerminalWeight = 500'000;

Error too_large(const auto& entry) {
  return Error{ErrorCode::kDeadline, fmt::format("the terminal '{}' is too large", entry.name), entry.where};
}

}  // namespace

RuleSet::Node RuleSet::sequence(std::vector<Node> parts) {
  if (parts.size() == 1) return parts[0];
  return add({Kind::kSequence, 0, 0, 0, std::move(parts)});
}

RuleSet::Node RuleSet::alternatives(std::vector<Node> parts) {
  if (parts.size() == 1) return parts[0];
  return add({Kind::kAlternatives, 0, 0, 0, std::move(parts)});
}

RuleSet::Node RuleSet::intersection(std::vector<Node> parts) {
  if (parts.size() == 1) return parts[0];
  return add({Kind::kIntersection, 0, 0, 0, std::move(parts)});
}

RuleSet::Node RuleSet::repeat(Node x, std::uint32_t min, std::uint32_t max) {
  return add({Kind::kRepeat, x, min, max, {}});
}

RuleSet::Node RuleSet::symbol(Symbol s) {
  return add({Kind::kSymbol, static_cast<std::uint32_t>(s.kind), s.id, 0, {}});
}

RuleSet::Rule RuleSet::rule(const std::string& name, const std::string& where) {
  const auto [it, fresh] = by_name_.try_emplace(name, static_cast<Rule>(rules_.size()));
  if (fresh) {
    rules_.emplace_back();
    rules_.back().name = name;
    rules_.back().where = where;
  }
  return it->second;
}

void RuleSet::define(Rule r, Node body) {
  rules_[r].defined = true;
  rules_[r].body = body;
}

void RuleSet::collect_uses(Node body, RuleEntry& entry) {
  std::vector<Node> work{body};
  while (!work.empty()) {
    const Expr& e = exprs_[work.back()];
    work.pop_back();
    if (e.kind == Kind::kReference) entry.uses.push_back(e.a);
    if (e.kind == Kind::kSymbol || e.kind == Kind::kLimited) entry.plain = false;
    if (e.kind == Kind::kRepeat || e.kind == Kind::kLimited || e.kind == Kind::kUntil ||
        e.kind == Kind::kComplement)
      work.push_back(e.a);
    work.insert(work.end(), e.kids.begin(), e.kids.end());
  }
}

std::uint64_t RuleSet::weight(Node n) const {
  const Expr& e = exprs_[n];
  if (e.kind == Kind::kRegex) return e.b;
  if (e.kind == Kind::kReference) return rules_[e.a].weight;
  if (e.kind == Kind::kRepeat || e.kind == Kind::kLimited || e.kind == Kind::kUntil ||
      e.kind == Kind::kComplement)
    return weight(e.a) + 1;
  std::uint64_t sum = 1;
  for (Node k : e.kids) sum += weight(k);
  return sum;
}

// The regex of an expression, or kNotRegular. Rules it refers to are settled already where they are regular.
RegexId RuleSet::as_regex(Node n) {
  if (regex_of_[n] != kNotRegular) return regex_of_[n];
  RegexPool& pool = builder_.regex();
  const Expr& e = exprs_[n];
  RegexId out = kNotRegular;
  switch (e.kind) {
    case Kind::kRegex:
      out = e.a;
      break;
    case Kind::kReference:
      if (rules_[e.a].regular) out = rules_[e.a].regex;
      break;
    case Kind::kSymbol:
    case Kind::kLimited:
      break;
    case Kind::kUntil: {
      const RegexId x = as_regex(e.a);
      if (x != kNotRegular) out = pool.shortest(pool.concat(x, e.b));
      break;
    }
    case Kind::kComplement: {
      const RegexId x = as_regex(e.a);
      if (x != kNotRegular) out = pool.minus(pool.star(pool.any_char()), x);
      break;
    }
    case Kind::kRepeat: {
      const RegexId x = as_regex(e.a);
      if (x != kNotRegular) out = pool.repeat(x, e.b, e.c);
      break;
    }
    case Kind::kSequence:
    case Kind::kIntersection:
    case Kind::kAlternatives: {
      if (weight(n) > kMaxInlineWeight) break;
      std::vector<RegexId> parts;
      bool all = true;
      for (std::size_t i = 0; i < e.kids.size() && all; ++i) {
        parts.push_back(as_regex(e.kids[i]));
        all = parts.back() != kNotRegular;
      }
      if (all)
        out = e.kind == Kind::kSequence       ? pool.concat(parts)
              : e.kind == Kind::kAlternatives ? pool.alt(parts)
                                              : pool.all_of(parts);
      break;
    }
  }
  regex_of_[n] = out;
  return out;
}

Result<Symbol> RuleSet::lower(Rule start) {
  // Only what the start needs has to be defined.
  std::vector<char> needed(rules_.size(), 0);
  std::vector<Rule> order, work{start};
  needed[start] = 1;
  while (!work.empty()) {
    const Rule r = work.back();
    work.pop_back();
    RuleEntry& entry = rules_[r];
    if (!entry.defined)
      return invalid_argument(fmt::format("the rule '{}' is used but not defined", entry.name), entry.where);
    order.push_back(r);
    collect_uses(entry.body, entry);
    for (Rule u : entry.uses) {
      if (needed[u]) continue;
      needed[u] = 1;
      work.push_back(u);
    }
  }
  regex_of_.assign(exprs_.size(), kNotRegular);
  // Rules become regular once everything they use is; recursive ones never do.
  std::vector<std::uint32_t> waiting(rules_.size(), 0);
  std::vector<std::vector<Rule>> users(rules_.size());
  std::vector<Rule> ready;
  for (Rule r : order) {
    waiting[r] = static_cast<std::uint32_t>(rules_[r].uses.size());
    for (Rule u : rules_[r].uses) users[u].push_back(r);
    if (waiting[r] == 0) ready.push_back(r);
  }
  while (!ready.empty()) {
    const Rule r = ready.back();
    ready.pop_back();
    RuleEntry& entry = rules_[r];
    if (entry.plain && weight(entry.body) <= kMaxInlineWeight) {
      entry.weight = weight(entry.body);
      const RegexId x = as_regex(entry.body);
      if (x != kNotRegular && builder_.regex().depth(x) <= kMaxInlineDepth) {
        entry.regular = true;
        entry.regex = x;
      }
    }
    if (!entry.regular && entry.must_be_regular &&
        entry.plain) {  // too large to inline by itself, but it has to be
      entry.weight = weight(entry.body);
      if (entry.weight > kMaxTerminalWeight) return too_large(entry);
      entry.regex = as_regex(entry.body);
      entry.regular = entry.regex != kNotRegular;
    }
    if (!entry.regular) continue;  // its users stay rules as well
    for (Rule u : users[r])
      if (--waiting[u] == 0) ready.push_back(u);
  }
  for (Rule r : order) {
    if (!rules_[r].regular) rules_[r].nonterminal = builder_.nonterminal(rules_[r].name);
    if (!rules_[r].regular && rules_[r].must_be_regular)
      return invalid_argument(fmt::format("the terminal '{}' uses itself or a rule", rules_[r].name),
                              rules_[r].where);
    DI_TRY(check_operands(r));
  }
  std::fill(regex_of_.begin(), regex_of_.end(), kNotRegular);
  if (rules_[start].regular) return builder_.lexeme(rules_[start].regex);
  for (Rule r : order)
    if (!rules_[r].regular) production(rules_[r].nonterminal, rules_[r].body);
  return rules_[start].nonterminal;
}

// Operators that exist for regular operands only.
Status RuleSet::check_operands(Rule r) {
  std::vector<Node> work{rules_[r].body};
  while (!work.empty()) {
    const Node n = work.back();
    const Expr& e = exprs_[n];
    work.pop_back();
    const bool special =
        e.kind == Kind::kUntil || e.kind == Kind::kIntersection || e.kind == Kind::kComplement;
    if ((special && as_regex(n) == kNotRegular) || (e.kind == Kind::kLimited && as_regex(e.a) == kNotRegular))
      return unsupported("lazy, stop, max_tokens, & and ~ apply to what is regular only",
                         fmt::format("{}, rule '{}'", rules_[r].where, rules_[r].name));
    if (e.kind == Kind::kRepeat) work.push_back(e.a);
    work.insert(work.end(), e.kids.begin(), e.kids.end());
  }
  return {};
}

// Adds the alternatives of `n` as productions of `target`, regular ones joined into one lexeme.
void RuleSet::production(Symbol target, Node n) {
  const Expr e = exprs_[n];
  if (e.kind == Kind::kAlternatives && as_regex(n) == kNotRegular) {
    std::vector<RegexId> regular;
    for (Node k : e.kids) {
      const RegexId x = as_regex(k);
      if (x != kNotRegular) {
        regular.push_back(x);
      } else {
        production(target, k);
      }
    }
    if (!regular.empty()) builder_.add_production(target, {builder_.lexeme(builder_.regex().alt(regular))});
    return;
  }
  if (e.kind == Kind::kSequence && as_regex(n) == kNotRegular) {
    std::vector<Symbol> rhs;
    RegexId joined = kEpsilonRegex;
    std::uint64_t joined_weight = 0;
    const auto flush = [&] {
      if (joined != kEpsilonRegex) rhs.push_back(builder_.lexeme(joined));
      joined = kEpsilonRegex;
      joined_weight = 0;
    };
    for (Node k : e.kids) {
      const RegexId x = as_regex(k);
      if (x != kNotRegular) {
        joined_weight += weight(k);
        if (joined_weight > kMaxInlineWeight) flush();
        joined = builder_.regex().concat(joined, x);
        continue;
      }
      flush();
      rhs.push_back(as_symbol(k));
    }
    flush();
    builder_.add_production(target, rhs);
    return;
  }
  builder_.add_production(target, {as_symbol(n)});
}

Symbol RuleSet::as_symbol(Node n) {
  const RegexId x = as_regex(n);
  if (x != kNotRegular) return builder_.lexeme(x);
  const Expr e = exprs_[n];
  switch (e.kind) {
    case Kind::kReference:
      return rules_[e.a].nonterminal;
    case Kind::kSymbol:
      return {static_cast<Symbol::Kind>(e.a), e.b};
    case Kind::kRepeat:
      return builder_.repeat(as_symbol(e.a), e.b, e.c);
    case Kind::kLimited: {
      LexemeOptions options;
      options.max_tokens = e.b;
      return builder_.lexeme(as_regex(e.a), options);
    }
    default: {
      const Symbol group = builder_.nonterminal();
      production(group, n);
      return group;
    }
  }
}

}  // namespace deepinfer::grammar
