// Named rules with alternatives, groups and repetition, as GBNF and Lark write them, and their lowering:
// whatever is not recursive becomes a regular expression, neighbours are joined, and only the recursive rest
// becomes rules of a context-free grammar. That is what makes character-level grammars as cheap as
// token-level ones.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "grammar/ir.h"

namespace deepinfer::grammar {

class RuleSet {
 public:
  using Node = std::uint32_t;
  using Rule = std::uint32_t;

  explicit RuleSet(GrammarBuilder& builder) : builder_(builder) {}

  // ---- Expressions.
  /// `weight`: roughly the number of characters, for the decision what to inline.
  Node regex(RegexId x, std::size_t weight = 1) {
    return add({Kind::kRegex, x, static_cast<std::uint32_t>(weight), 0, {}});
  }
  Node sequence(std::vector<Node> parts);
  Node alternatives(std::vector<Node> parts);
  Node repeat(Node x, std::uint32_t min, std::uint32_t max);
  Node reference(Rule rule) { return add({Kind::kReference, rule, 0, 0, {}}); }
  /// x as one lexeme of its own with options; x has to turn out regular.
  Node limited(Node x, std::uint32_t max_tokens) { return add({Kind::kLimited, x, max_tokens, 0, {}}); }
  /// The shortest strings of x that end in `stop`; x has to turn out regular.
  Node until(Node x, RegexId stop) { return add({Kind::kUntil, x, stop, 0, {}}); }
  /// Both, and the complement within well-formed text; the operands have to be regular.
  Node intersection(std::vector<Node> parts);
  Node complement(Node x) { return add({Kind::kComplement, x, 0, 0, {}}); }
  /// A symbol that cannot be part of a regular expression (a token, a lexeme with options).
  Node symbol(Symbol s);

  // ---- Rules. The first mention of a name makes the rule; `where` of the first mention is kept for errors.
  Rule rule(const std::string& name, const std::string& where);
  bool defined(Rule r) const { return rules_[r].defined; }
  void define(Rule r, Node body);

  /// A rule that must be regular (a terminal): lower() fails by name when it is not.
  void require_regular(Rule r) { rules_[r].must_be_regular = true; }

  /// kInvalidArgument when a rule is used but not defined, naming it.
  Result<Symbol> lower(Rule start);

 private:
  enum class Kind : std::uint8_t {
    kRegex,
    kSequence,
    kAlternatives,
    kRepeat,
    kReference,
    kSymbol,
    kLimited,
    kUntil,
    kIntersection,
    kComplement
  };
  struct Expr {
    Kind kind;
    std::uint32_t a, b, c;  // regex id, weight | rule | child, min, max | symbol kind and id
    std::vector<Node> kids;
  };
  struct RuleEntry {
    std::string name, where;
    bool defined = false;
    Node body = 0;
    std::vector<Rule> uses;  // with repeats
    bool must_be_regular = false;
    bool plain = true;  // no symbol in its body
    bool regular = false;
    RegexId regex = kEmptyRegex;
    std::uint64_t weight = 0;
    Symbol nonterminal;
  };
  static constexpr RegexId kNotRegular = 0xFFFFFFFFu;

  Node add(Expr e) {
    exprs_.push_back(std::move(e));
    return static_cast<Node>(exprs_.size() - 1);
  }
  std::uint64_t weight(Node n) const;
  void collect_uses(Node body, RuleEntry& entry);
  RegexId as_regex(Node n);
  Status check_operands(Rule r);
  void production(Symbol target, Node n);
  Symbol as_symbol(Node n);

  GrammarBuilder& builder_;
  std::vector<Expr> exprs_;
  std::vector<RegexId> regex_of_;  // per expression; computed once
  std::vector<RuleEntry> rules_;
  std::unordered_map<std::string, Rule> by_name_;
};

}  // namespace deepinfer::grammar
