#include "grammar/lark.h"

#include <fmt/format.h>

#include <algorithm>

#include "grammar/json_schema.h"
#include "grammar/regex_parser.h"
#include "grammar/rule_set.h"

namespace deepinfer::grammar {
namespace {

constexpr int kMaxNesting = 100;
constexpr std::size_t kMaxBytes = 8u << 20;
constexpr const char* kIgnoreRule = "%ignore";

bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}
bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name(char c) {
  return is_lower(c) || is_upper(c) || is_digit(c) || c == '_' || c == '-';
}

class LarkParser {
 public:
  LarkParser(GrammarBuilder& builder, std::string_view text, const Vocabulary& vocabulary)
      : builder_(builder), rules_(builder), text_(text), vocabulary_(vocabulary) {
    ignore_ = rules_.rule(kIgnoreRule, "the grammar");
    gap_ = rules_.repeat(rules_.reference(ignore_), 0, kUnbounded);
  }

  Result<Symbol> run() {
    if (text_.size() > kMaxBytes)
      return invalid_argument(fmt::format("the grammar is longer than {} bytes", kMaxBytes));
    const RuleSet::Rule whole = rules_.rule("%whole", "the grammar");
    const RuleSet::Rule start = rules_.rule("start", "the grammar");
    skip_lines();
    while (!at_end()) {
      DI_TRY(peek() == '%' ? directive() : definition());
      if (builder_.error()) return *builder_.error();
      skip_lines();
    }
    rules_.define(ignore_, ignored_.empty() ? rules_.regex(kEpsilonRegex) : rules_.alternatives(ignored_));
    rules_.require_regular(ignore_);
    rules_.define(whole, rules_.sequence({rules_.reference(start), gap_}));
    return rules_.lower(whole);
  }

 private:
  using Node = RuleSet::Node;
  struct Attributes {
    bool lazy = false;
    std::uint32_t max_tokens = 0;
    RegexId stop = kEmptyRegex;
  };

  // ---- Characters.
  Error error(std::string what, ErrorCode code = ErrorCode::kInvalidArgument) const {
    const std::size_t here = std::min(pos_, text_.size());
    if (here < counted_to_) counted_to_ = 0, line_ = 1;
    line_ += std::count(text_.begin() + static_cast<std::ptrdiff_t>(counted_to_),
                        text_.begin() + static_cast<std::ptrdiff_t>(here), '\n');
    counted_to_ = here;
    return {code, std::move(what), fmt::format("line {}", line_)};
  }
  Error refused(std::string_view what) const {
    return error(fmt::format("{} is not supported in a Lark grammar", what), ErrorCode::kUnsupported);
  }
  std::string where() const { return error({}).where; }
  bool at_end() const { return pos_ >= text_.size(); }
  char peek(std::size_t ahead = 0) const { return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0'; }
  bool take(std::string_view s) {
    if (!text_.substr(pos_).starts_with(s)) return false;
    pos_ += s.size();
    return true;
  }
  bool comment() {
    if (peek() != '#' && !(peek() == '/' && peek(1) == '/')) return false;
    while (!at_end() && peek() != '\n') ++pos_;
    return true;
  }
  // Blanks and comments in a line; true when the line ended.
  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\r' || (peek() == '\\' && peek(1) == '\n'))
      pos_ += peek() == '\\' ? 2 : 1;
    comment();
  }
  void skip_lines() {
    while (true) {
      skip_blanks();
      if (peek() != '\n' || at_end()) return;
      ++pos_;
    }
  }
  // An alternative may go on in the next line when that begins with a bar.
  bool take_bar() {
    skip_blanks();
    const std::size_t before = pos_;
    skip_lines();
    if (take("|")) return true;
    pos_ = before;
    return false;
  }

  Result<std::string> name() {
    const std::size_t begin = pos_;
    while (is_name(peek())) ++pos_;
    if (pos_ == begin) return error("a name was expected");
    return std::string(text_.substr(begin, pos_ - begin));
  }

  Result<std::uint32_t> number() {
    std::uint64_t value = 0;
    const std::size_t begin = pos_;
    for (; is_digit(peek()); ++pos_) {
      value = value * 10 + static_cast<std::uint64_t>(peek() - '0');
      if (value >= kUnbounded) return error("a number is too large");
    }
    if (pos_ == begin) return error("a number was expected");
    return static_cast<std::uint32_t>(value);
  }

  static bool is_terminal_name(const std::string& n) {
    for (char c : n) {
      if (is_lower(c)) return false;
      if (is_upper(c)) return true;
    }
    return false;
  }

  // ---- Statements.
  Status definition() {
    while (peek() == '?' || peek() == '!') ++pos_;
    const std::string place = where();
    DI_ASSIGN(const std::string id, name());
    const bool terminal = is_terminal_name(id);
    const RuleSet::Rule r = rules_.rule(id, place);
    if (rules_.defined(r)) return error(fmt::format("'{}' is defined twice", id));
    if (peek() == '{') return refused("a template");
    Attributes attributes;
    if (take("[")) DI_TRY(read_attributes(attributes));
    if (take(".")) {
      take("-");
      DI_TRY(number());
    }
    skip_blanks();
    if (!take(":")) return error(": was expected");
    DI_ASSIGN(Node body, alternatives(terminal || attributes.lazy || attributes.stop != kEmptyRegex ||
                                          attributes.max_tokens > 0,
                                      0));
    if (attributes.lazy && attributes.stop == kEmptyRegex) body = rules_.until(body, kEpsilonRegex);
    if (attributes.stop != kEmptyRegex) body = rules_.until(body, attributes.stop);
    if (attributes.max_tokens > 0) {
      if (terminal) return error("max_tokens belongs to a rule, not to a terminal");
      body = rules_.limited(body, attributes.max_tokens);
    }
    if (!terminal && (attributes.lazy || attributes.stop != kEmptyRegex || attributes.max_tokens > 0))
      body = rules_.sequence({gap_, body});
    rules_.define(r, body);
    if (terminal) rules_.require_regular(r);
    skip_blanks();
    if (!at_end() && peek() != '\n') return error(fmt::format("unexpected '{}'", peek()));
    return {};
  }

  Status read_attributes(Attributes& out) {
    while (true) {
      skip_blanks();
      DI_ASSIGN(const std::string key, name());
      skip_blanks();
      const bool value = take("=");
      skip_blanks();
      if (key == "lazy" && !value) {
        out.lazy = true;
      } else if (key == "max_tokens" && value) {
        DI_ASSIGN(out.max_tokens, number());
      } else if ((key == "stop" || key == "suffix") && value) {
        if (peek() == '"') {
          DI_ASSIGN(out.stop, string_regex());
        } else if (peek() == '/') {
          DI_ASSIGN(out.stop, slash_regex());
        } else {
          return error("a string or a regular expression was expected");
        }
      } else if (key == "capture") {
        if (value && peek() == '"') DI_TRY(string_bytes());
      } else {
        return refused(fmt::format("the attribute '{}'", key));
      }
      skip_blanks();
      if (take("]")) return {};
      if (!take(",")) return error("] was expected");
    }
  }

  Status directive() {
    if (take("%ignore")) {
      skip_blanks();
      DI_ASSIGN(const Node body, alternatives(true, 0));
      ignored_.push_back(body);
      return {};
    }
    if (take("%import")) {
      skip_blanks();
      if (!take("common")) return refused("an import from anything but 'common'");
      skip_blanks();
      if (!take(".")) return error(". was expected");
      std::vector<std::string> names;
      if (take("(")) {
        while (!take(")")) {
          skip_lines();
          DI_ASSIGN(std::string one, name());
          names.push_back(std::move(one));
          skip_lines();
          take(",");
          skip_lines();
          if (at_end()) return error(") was expected");
        }
      } else {
        DI_ASSIGN(std::string one, name());
        names.push_back(std::move(one));
      }
      if (names.empty()) return error("a name was expected between the parentheses");
      skip_blanks();
      std::string alias = names[0];
      if (names.size() == 1 && take("->")) {
        skip_blanks();
        DI_ASSIGN(alias, name());
      }
      for (const std::string& n : names) {
        const std::string_view pattern = lark_common_terminal(n);
        if (pattern.empty()) return refused(fmt::format("the import common.{}", n));
        DI_ASSIGN(const RegexId x, parse_regex(builder_.regex(), pattern));
        const RuleSet::Rule r = rules_.rule(names.size() == 1 ? alias : n, where());
        if (rules_.defined(r)) return error(fmt::format("'{}' is defined twice", n));
        rules_.define(r, rules_.regex(x, pattern.size()));
        rules_.require_regular(r);
      }
      return {};
    }
    const std::size_t begin = pos_++;
    while (is_name(peek())) ++pos_;
    const std::string_view word = text_.substr(begin, pos_ - begin);
    return refused(word);
  }

  // ---- Expressions. `tight`: inside a terminal, where nothing is ignored between parts.
  Result<Node> alternatives(bool tight, int depth) {
    if (depth > kMaxNesting) return error(fmt::format("groups are nested deeper than {}", kMaxNesting));
    std::vector<Node> parts;
    do {
      skip_blanks();
      DI_ASSIGN(const Node part, conjunction(tight, depth));
      parts.push_back(part);
      skip_blanks();
      if (take("->")) {  // an alias names a tree node; the language does not change
        skip_blanks();
        DI_TRY(name());
      }
    } while (take_bar());
    return rules_.alternatives(std::move(parts));
  }

  Result<Node> conjunction(bool tight, int depth) {
    std::vector<Node> parts;
    do {
      DI_ASSIGN(const Node part, sequence(tight, depth));
      parts.push_back(part);
      skip_blanks();
    } while (take("&"));
    return rules_.intersection(std::move(parts));
  }

  Result<Node> sequence(bool tight, int depth) {
    std::vector<Node> parts;
    while (true) {
      if (depth > 0) {
        skip_lines();
      } else {
        skip_blanks();
      }
      const char c = peek();
      if (at_end() || c == '\n' || c == '|' || c == ')' || c == ']' || c == '&' ||
          (c == '-' && peek(1) == '>'))
        break;
      DI_ASSIGN(Node item, atom(tight, depth));
      DI_TRY(repetition(item));
      parts.push_back(item);
    }
    return parts.empty() ? rules_.regex(kEpsilonRegex) : rules_.sequence(std::move(parts));
  }

  Status repetition(Node& item) {
    for (int count = 0;; ++count) {
      std::uint32_t min = 0, max = kUnbounded;
      if (take("*")) {
      } else if (take("+")) {
        min = 1;
      } else if (take("?")) {
        max = 1;
      } else if (peek() == '~' && (is_digit(peek(1)) || peek(1) == ' ')) {
        ++pos_;
        skip_blanks();
        DI_ASSIGN(min, number());
        max = min;
        if (take("..")) {
          DI_ASSIGN(max, number());
        }
      } else if (peek() == '{' && is_digit(peek(1))) {
        ++pos_;
        DI_ASSIGN(min, number());
        max = min;
        if (take(",")) {
          max = kUnbounded;
          if (peek() != '}') {
            DI_ASSIGN(max, number());
          }
        }
        if (!take("}")) return error("} was expected");
      } else {
        return {};
      }
      if (max < min) return error("a repetition's bounds are out of order");
      if (count >= kMaxNesting) return error("too many repetitions of one symbol");
      item = rules_.repeat(item, min, max);
    }
  }

  // A terminal as it stands in a rule: what is ignored may come before it.
  Node spaced(Node terminal, bool tight) { return tight ? terminal : rules_.sequence({gap_, terminal}); }

  Result<Node> atom(bool tight, int depth) {
    const char c = peek();
    if (take("(")) {
      DI_ASSIGN(const Node inner, alternatives(tight, depth + 1));
      skip_lines();
      if (!take(")")) return error(") was expected");
      return inner;
    }
    if (take("[")) {
      DI_ASSIGN(const Node inner, alternatives(tight, depth + 1));
      skip_lines();
      if (!take("]")) return error("] was expected");
      return rules_.repeat(inner, 0, 1);
    }
    if (c == '~') {
      ++pos_;
      if (depth > kMaxNesting) return error("too many complements");
      DI_ASSIGN(const Node inner, atom(true, depth + 1));
      return spaced(rules_.complement(inner), tight);
    }
    if (c == '"') {
      const std::size_t before = pos_;
      DI_ASSIGN(const std::string low, string_bytes());
      if (take("..")) return range(low, tight);
      pos_ = before;
      DI_ASSIGN(const RegexId x, string_regex());
      return spaced(rules_.regex(x, low.size()), tight);
    }
    if (c == '/') {
      const std::size_t before = pos_;
      DI_ASSIGN(const RegexId x, slash_regex());
      return spaced(rules_.regex(x, pos_ - before), tight);
    }
    if (c == '<') return token(tight);
    if (c == '%') return inline_part(tight);
    if (is_lower(c) || is_upper(c) || c == '_') {
      const std::string place = where();
      DI_ASSIGN(const std::string id, name());
      if (peek() == '{' && !is_digit(peek(1))) return refused("a template");
      const Node reference = rules_.reference(rules_.rule(id, place));
      return is_terminal_name(id) ? spaced(reference, tight) : reference;
    }
    return error(fmt::format("unexpected '{}'", c));
  }

  Result<Node> range(const std::string& low, bool tight) {
    skip_blanks();
    DI_ASSIGN(const std::string high, string_bytes());
    std::size_t a = 0, b = 0;
    std::uint32_t first = 0, last = 0;
    if (!next_utf8(low, a, first) || !next_utf8(high, b, last) || a != low.size() || b != high.size() ||
        last < first)
      return error("a range needs two characters in order");
    return spaced(rules_.regex(builder_.regex().chars(CharSet::range(first, last))), tight);
  }

  // At a quote: the bytes of the string, escapes read.
  Result<std::string> string_bytes() {
    std::string bytes;
    if (!take("\"")) return error("a string was expected");
    while (true) {
      if (at_end() || peek() == '\n') return error("a string is not closed");
      if (take("\"")) return bytes;
      if (peek() != '\\') {
        bytes.push_back(text_[pos_++]);
        continue;
      }
      ++pos_;
      const char c = peek();
      ++pos_;
      const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
      if (digits > 0) {
        std::uint32_t value = 0;
        for (int i = 0; i < digits; ++i, ++pos_) {
          const char h = peek();
          const int d = is_digit(h)            ? h - '0'
                        : h >= 'a' && h <= 'f' ? h - 'a' + 10
                        : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                               : -1;
          if (d < 0) return error("hexadecimal digits were expected");
          value = value * 16 + static_cast<std::uint32_t>(d);
        }
        if (value > kMaxCodePoint || (value >= 0xD800 && value <= 0xDFFF)) return error("not a character");
        append_utf8(value, bytes);
        continue;
      }
      switch (c) {
        case 'n':
          bytes.push_back('\n');
          break;
        case 't':
          bytes.push_back('\t');
          break;
        case 'r':
          bytes.push_back('\r');
          break;
        case 'f':
          bytes.push_back('\f');
          break;
        case '\\':
        case '"':
        case '\'':
        case '/':
          bytes.push_back(c);
          break;
        default:
          return error("unknown escape in a string");
      }
    }
  }

  Result<RegexId> string_regex() {
    DI_ASSIGN(const std::string bytes, string_bytes());
    std::size_t pos = 0;
    std::uint32_t c = 0;
    const bool fold = peek() == 'i' && !is_name(peek(1));
    if (fold) ++pos_;
    std::vector<RegexId> parts;
    while (pos < bytes.size()) {
      if (!next_utf8(bytes, pos, c)) return error("a string is not valid UTF-8");
      const CharSet one = CharSet::of(c);
      parts.push_back(builder_.regex().chars(fold ? one.case_folded(true) : one));
    }
    return builder_.regex().concat(parts);
  }

  Result<RegexId> slash_regex() {
    ++pos_;
    const std::size_t begin = pos_;
    bool in_class = false;
    for (; !at_end() && peek() != '\n' && (peek() != '/' || in_class); ++pos_) {
      if (peek() == '\\')
        ++pos_;
      else if (peek() == '[')
        in_class = true;
      else if (peek() == ']')
        in_class = false;
    }
    if (peek() != '/') return error("a regular expression is not closed");
    std::string pattern(text_.substr(begin, pos_ - begin));
    ++pos_;
    RegexOptions options;
    for (;; ++pos_) {
      if (peek() == 'i')
        options.ignore_case = true;
      else if (peek() == 's')
        options.dot_all = true;
      else if (peek() == 'x')
        options.verbose = true;
      else if (peek() == 'u')
        options.unicode_classes = true;
      else if (peek() == 'm' || peek() == 'l')
        return refused(fmt::format("the regex flag {}", peek()));
      else
        break;
    }
    Result<RegexId> x = parse_regex(builder_.regex(), pattern, options);
    if (!x.ok()) return x.error().at(where());
    return x;
  }

  Result<Node> token(bool tight) {
    if (tight) return error("a token cannot be part of a terminal");
    ++pos_;
    std::vector<TokenId> ids;
    if (take("[")) {
      do {
        DI_ASSIGN(const std::uint32_t first, number());
        std::uint32_t last = first;
        if (take("-")) {
          DI_ASSIGN(last, number());
        }
        if (last < first || last >= vocabulary_.token_count())
          return error(fmt::format("token {} is not in the vocabulary", last));
        for (std::uint32_t id = first; id <= last; ++id) ids.push_back(static_cast<TokenId>(id));
      } while (take(","));
      if (!take("]>")) return error("]> was expected");
    } else {
      const std::size_t end = text_.find('>', pos_);
      if (end == std::string_view::npos) return error("a token is not closed");
      const std::string spelling = "<" + std::string(text_.substr(pos_, end - pos_)) + ">";
      pos_ = end + 1;
      ids.push_back(vocabulary_.find_token(spelling));
      if (ids.back() < 0) return error(fmt::format("'{}' is not one token of the vocabulary", spelling));
    }
    return rules_.sequence({gap_, rules_.symbol(builder_.tokens(ids))});
  }

  // %json { ... } inside a rule.
  Result<Node> inline_part(bool tight) {
    if (!take("%json")) return refused("this directive inside a rule");
    if (tight) return error("%json cannot be part of a terminal");
    skip_blanks();
    const std::size_t begin = pos_;
    int depth = 0;
    bool in_string = false;
    for (; !at_end(); ++pos_) {
      const char c = peek();
      if (in_string) {
        if (c == '\\')
          ++pos_;
        else if (c == '"')
          in_string = false;
      } else if (c == '"') {
        in_string = true;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if ((c == '}' || c == ']') && --depth == 0) {
        break;
      }
    }
    if (at_end()) return error("the schema behind %json is not closed");
    ++pos_;
    Result<Symbol> s = add_json_schema(builder_, text_.substr(begin, pos_ - begin), SchemaOptions{});
    if (!s.ok()) return s.error().at(where());
    return rules_.sequence({gap_, rules_.symbol(s.value())});
  }

  GrammarBuilder& builder_;
  RuleSet rules_;
  std::string_view text_;
  const Vocabulary& vocabulary_;
  std::size_t pos_ = 0;
  RuleSet::Rule ignore_ = 0;
  Node gap_ = 0;
  std::vector<Node> ignored_;
  mutable std::size_t counted_to_ = 0;
  mutable std::ptrdiff_t line_ = 1;
};

}  // namespace

Result<Symbol> build_lark(GrammarBuilder& builder, std::string_view text, const Vocabulary& vocabulary) {
  return LarkParser(builder, text, vocabulary).run();
}

}  // namespace deepinfer::grammar
