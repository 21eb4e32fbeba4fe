#include "grammar/gbnf.h"

#include <fmt/format.h>

#include <algorithm>

#include "grammar/rule_set.h"

namespace deepinfer::grammar {
namespace {

constexpr int kMaxNesting = 100;
constexpr std::size_t kMaxBytes = 8u << 20;

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class GbnfParser {
 public:
  GbnfParser(GrammarBuilder& builder, std::string_view text, const Vocabulary& vocabulary)
      : builder_(builder), rules_(builder), text_(text), vocabulary_(vocabulary) {}

  Result<Symbol> run() {
    if (text_.size() > kMaxBytes)
      return invalid_argument(fmt::format("the grammar is longer than {} bytes", kMaxBytes));
    space(true);
    while (pos_ < text_.size()) {
      DI_TRY(rule());
      if (builder_.error()) return *builder_.error();
    }
    return rules_.lower(rules_.rule("root", "the grammar"));
  }

 private:
  using Node = RuleSet::Node;

  Error error(std::string what) const {
    const std::size_t here = std::min(pos_, text_.size());
    if (here < counted_to_) counted_to_ = 0, line_ = 1;
    line_ += std::count(text_.begin() + static_cast<std::ptrdiff_t>(counted_to_),
                        text_.begin() + static_cast<std::ptrdiff_t>(here), '\n');
    counted_to_ = here;
    return invalid_argument(std::move(what), fmt::format("line {}", line_));
  }
  std::string where() const { return error({}).where; }
  bool at_end() const { return pos_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[pos_]; }
  bool take(std::string_view s) {
    if (!text_.substr(pos_).starts_with(s)) return false;
    pos_ += s.size();
    return true;
  }

  // Blanks and comments; newlines too where a rule may go on behind them.
  void space(bool newlines) {
    while (!at_end()) {
      const char c = text_[pos_];
      if (c == '#') {
        while (!at_end() && text_[pos_] != '\n' && text_[pos_] != '\r') ++pos_;
      } else if (c == ' ' || c == '\t' || (newlines && (c == '\n' || c == '\r'))) {
        ++pos_;
      } else {
        return;
      }
    }
  }

  Result<std::string> name() {
    const std::size_t begin = pos_;
    while (!at_end() && is_name(text_[pos_])) ++pos_;
    if (pos_ == begin) return error("a rule name was expected");
    return std::string(text_.substr(begin, pos_ - begin));
  }

  Status rule() {
    DI_ASSIGN(const std::string rule_name, name());
    const RuleSet::Rule r = rules_.rule(rule_name, where());
    if (rules_.defined(r)) return error(fmt::format("the rule '{}' is defined twice", rule_name));
    space(false);
    if (!take("::=")) return error("::= was expected");
    space(true);
    DI_ASSIGN(const Node body, alternatives(0));
    rules_.define(r, body);
    if (!at_end() && peek() != '\n' && peek() != '\r') return error(fmt::format("unexpected '{}'", peek()));
    space(true);
    return {};
  }

  Result<Node> alternatives(int depth) {
    if (depth > kMaxNesting) return error(fmt::format("groups are nested deeper than {}", kMaxNesting));
    std::vector<Node> parts;
    while (true) {
      DI_ASSIGN(const Node part, sequence(depth));
      parts.push_back(part);
      if (!take("|")) return rules_.alternatives(std::move(parts));
      space(true);
    }
  }

  Result<Node> sequence(int depth) {
    const bool nested = depth > 0;
    std::vector<Node> parts;
    while (true) {
      Result<Node> item = 0u;
      if (take("\"")) {
        item = literal();
      } else if (take("[")) {
        item = char_class();
      } else if (take(".")) {
        item = rules_.regex(builder_.regex().any_char());
      } else if (take("(")) {
        space(true);
        item = alternatives(depth + 1);
        if (item.ok() && !take(")")) return error(") was expected");
      } else if (peek() == '<' || peek() == '!') {
        item = token();
      } else if (is_name(peek())) {
        // A name before ::= begins the next rule (only possible behind a newline inside a group, an error
        // there).
        const std::string place = where();
        DI_ASSIGN(const std::string rule_name, name());
        item = rules_.reference(rules_.rule(rule_name, place));
      } else {
        break;
      }
      DI_TRY(item);
      space(nested);
      Node node = item.value();
      DI_TRY(repetitions(node, nested));
      parts.push_back(node);
    }
    if (parts.empty()) return rules_.regex(kEpsilonRegex);
    return rules_.sequence(std::move(parts));
  }

  Status repetitions(Node& node, bool nested) {
    for (int count = 0;; ++count) {
      std::uint32_t min = 0, max = kUnbounded;
      if (take("*")) {
      } else if (take("+")) {
        min = 1;
      } else if (take("?")) {
        max = 1;
      } else if (take("{")) {
        DI_TRY(counts(min, max));
      } else {
        return {};
      }
      if (count >= kMaxNesting) return error("too many repetitions of one symbol");
      node = rules_.repeat(node, min, max);
      space(nested);
    }
  }

  Result<std::uint32_t> number() {
    std::uint64_t value = 0;
    const std::size_t begin = pos_;
    for (; !at_end() && peek() >= '0' && peek() <= '9'; ++pos_) {
      value = value * 10 + static_cast<std::uint64_t>(peek() - '0');
      if (value >= kUnbounded) return error("a repetition count is too large");
    }
    if (pos_ == begin) return error("a number was expected");
    return static_cast<std::uint32_t>(value);
  }

  Status counts(std::uint32_t& min, std::uint32_t& max) {
    space(false);
    DI_ASSIGN(min, number());
    space(false);
    max = min;
    if (take(",")) {
      space(false);
      max = kUnbounded;
      if (peek() != '}') {
        DI_ASSIGN(max, number());
        space(false);
      }
    }
    if (!take("}")) return error("} was expected");
    if (max < min)
      return error(fmt::format("the repetition {{{},{}}} has its bounds out of order", min, max));
    return {};
  }

  Result<std::uint32_t> character() {
    if (at_end()) return error("the grammar ends inside a literal or a class");
    if (peek() != '\\') {
      std::uint32_t c = 0;
      if (!next_utf8(text_, pos_, c)) return error("the grammar is not valid UTF-8");
      return c;
    }
    ++pos_;
    const char c = peek();
    ++pos_;
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0) {
      std::uint32_t value = 0;
      for (int i = 0; i < digits; ++i, ++pos_) {
        const char h = peek();
        const int d = h >= '0' && h <= '9'   ? h - '0'
                      : h >= 'a' && h <= 'f' ? h - 'a' + 10
                      : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                             : -1;
        if (d < 0) return error(fmt::format("{} hexadecimal digits were expected", digits));
        value = value * 16 + static_cast<std::uint32_t>(d);
      }
      if (value > kMaxCodePoint) return error("a code point is too large");
      return value;
    }
    switch (c) {
      case 't':
        return std::uint32_t{'\t'};
      case 'r':
        return std::uint32_t{'\r'};
      case 'n':
        return std::uint32_t{'\n'};
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
        return static_cast<std::uint32_t>(c);
      default:
        --pos_;
        return error("unknown escape in a literal or a class");
    }
  }

  Result<Node> literal() {
    std::string bytes;
    while (peek() != '"' || at_end()) {
      DI_ASSIGN(const std::uint32_t c, character());
      if (c >= 0xD800 && c <= 0xDFFF) return error("a surrogate is not a character");
      append_utf8(c, bytes);
    }
    ++pos_;
    return rules_.regex(builder_.regex().literal(bytes), bytes.size());
  }

  Result<Node> char_class() {
    CharSet set;
    const bool negated = take("^");
    while (peek() != ']' || at_end()) {
      DI_ASSIGN(const std::uint32_t first, character());
      std::uint32_t last = first;
      if (peek() == '-' && pos_ + 1 < text_.size() && text_[pos_ + 1] != ']') {
        ++pos_;
        DI_ASSIGN(last, character());
        if (last < first) return error("a character range is out of order");
      }
      set.add(first, last);
    }
    ++pos_;
    return rules_.regex(builder_.regex().chars(negated ? set.negated() : set));
  }

  Result<Node> token() {
    const bool except = take("!");
    if (!take("<")) return error("< was expected");
    TokenId id = -1;
    if (take("[")) {
      DI_ASSIGN(const std::uint32_t value, number());
      if (!take("]>")) return error("]> was expected");
      if (value >= vocabulary_.token_count())
        return error(fmt::format("token {} is not in the vocabulary", value));
      id = static_cast<TokenId>(value);
    } else {
      const std::size_t end = text_.find('>', pos_);
      if (end == std::string_view::npos) return error("a token is not closed");
      const std::string spelling = "<" + std::string(text_.substr(pos_, end - pos_)) + ">";
      pos_ = end + 1;
      id = vocabulary_.find_token(spelling);
      if (id < 0) return error(fmt::format("'{}' is not one token of the vocabulary", spelling));
    }
    return rules_.symbol(except ? builder_.tokens_except({&id, 1}) : builder_.tokens({&id, 1}));
  }

  GrammarBuilder& builder_;
  RuleSet rules_;
  std::string_view text_;
  const Vocabulary& vocabulary_;
  std::size_t pos_ = 0;
  mutable std::size_t counted_to_ = 0;  // lines are counted once, going forward
  mutable std::ptrdiff_t line_ = 1;
};

}  // namespace

Result<Symbol> build_gbnf(GrammarBuilder& builder, std::string_view text, const Vocabulary& vocabulary) {
  return GbnfParser(builder, text, vocabulary).run();
}

}  // namespace deepinfer::grammar
