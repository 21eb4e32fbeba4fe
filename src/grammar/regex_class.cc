#include "grammar/regex_class.h"

#include <fmt/format.h>

#include <array>

namespace deepinfer::grammar {
namespace {

constexpr int kMaxClassNesting = 50;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

Error RegexReader::malformed(std::string what) const {
  return invalid_argument(std::move(what), fmt::format("offset {}", pos_));
}

Error RegexReader::refused(std::string_view what) const {
  return unsupported(fmt::format("{} in a regular expression is not supported", what),
                     fmt::format("offset {}", pos_));
}

void RegexReader::skip_verbose_space() {
  if (!flags.verbose) return;
  while (!at_end()) {
    const char c = peek();
    if (c == ' ' || (c >= '\t' && c <= '\r')) {
      skip();
    } else if (c == '#') {
      while (!at_end() && peek() != '\n') skip();
    } else {
      return;
    }
  }
}

Result<std::uint32_t> RegexReader::code_point() {
  std::uint32_t c = 0;
  if (at_end()) return malformed("the pattern ends too early");
  if (!next_utf8(text_, pos_, c)) return malformed("the pattern is not valid UTF-8");
  return c;
}

Result<bool> RegexReader::counts(std::uint32_t& min, std::uint32_t& max) {
  std::size_t p = pos_ + 1;
  bool too_large = false;
  const auto space = [&] {
    while (!ecma() && p < text_.size() && text_[p] == ' ') ++p;
  };
  const auto number = [&](std::uint32_t& value) {
    space();
    const std::size_t begin = p;
    std::uint64_t v = 0;
    while (p < text_.size() && is_digit(text_[p])) {
      v = v * 10 + static_cast<std::uint64_t>(text_[p++] - '0');
      if (v >= kUnbounded) v = kUnbounded - 1, too_large = true;
    }
    value = static_cast<std::uint32_t>(v);
    const bool any = p > begin;
    space();
    return any;
  };
  const bool has_min = number(min);
  if (!has_min) min = 0;
  max = min;
  bool has_max = has_min;
  if (p < text_.size() && text_[p] == ',') {
    ++p;
    has_max = number(max);
    if (!has_max) {
      max = kUnbounded;
      has_max = has_min;
    }
    if (!has_min && (ecma() || max == kUnbounded))
      return false;  // {,n} is plain text in ECMA-262, {,} everywhere
  }
  if (!has_max || p >= text_.size() || text_[p] != '}') return false;
  if (too_large) return malformed("a repetition count is too large");
  if (max < min) return malformed("a repetition's bounds are out of order");
  pos_ = p + 1;
  return true;
}

Result<std::uint32_t> RegexReader::hex(int digits) {
  std::uint32_t value = 0;
  for (int i = 0; i < digits; ++i) {
    const int d = at_end() ? -1 : hex_digit(peek());
    if (d < 0) return malformed(fmt::format("{} hexadecimal digits expected", digits));
    value = value * 16 + static_cast<std::uint32_t>(d);
    skip();
  }
  return value;
}

Result<std::uint32_t> RegexReader::braced_hex() {
  std::uint32_t value = 0;
  int count = 0;
  for (; !at_end() && hex_digit(peek()) >= 0; ++count) {
    value = value * 16 + static_cast<std::uint32_t>(hex_digit(peek()));
    if (value > kMaxCodePoint) return malformed("a code point is too large");
    skip();
  }
  if (count == 0 || !take('}')) return malformed("a code point in braces is not closed");
  return value;
}

Result<CharSet> RegexReader::property(bool negated) {
  std::string_view name;
  if (take('{')) {
    if (take('^')) negated = !negated;
    const std::size_t end = text_.find('}', pos_);
    if (end == std::string_view::npos) return malformed("a property name is not closed");
    name = text_.substr(pos_, end - pos_);
    pos_ = end + 1;
  } else {
    if (at_end()) return malformed("a property name is missing");
    name = text_.substr(pos_++, 1);
  }
  CharSet set;
  if (!CharSet::unicode_property(name, set))
    return refused(fmt::format("the Unicode property '{}'", name.substr(0, 40)));
  set = folded(set);
  return negated ? set.negated() : set;
}

Result<CharSet> RegexReader::escape(bool in_class) {
  take('\\');
  if (at_end()) return malformed("a backslash ends the pattern");
  const char c = peek();
  const auto one = [this](std::uint32_t code_point) { return folded(CharSet::of(code_point)); };
  switch (c) {
    case 'd':
      skip();
      return CharSet::digits(flags.unicode);
    case 'D':
      skip();
      return CharSet::digits(flags.unicode).negated();
    case 'w':
      skip();
      return CharSet::word(flags.unicode);
    case 'W':
      skip();
      return CharSet::word(flags.unicode).negated();
    case 's':
    case 'S': {
      skip();
      CharSet set = CharSet::space(flags.unicode || ecma());
      if (ecma()) {  // ECMA-262 counts the byte order mark as white space, and NEL not
        set = set.minus(CharSet::of(0x85));
        set.add(0xFEFF, 0xFEFF);
      }
      return c == 's' ? set : set.negated();
    }
    case 'p':
      skip();
      return property(false);
    case 'P':
      skip();
      return property(true);
    case 'n':
      skip();
      return CharSet::of('\n');
    case 'r':
      skip();
      return CharSet::of('\r');
    case 't':
      skip();
      return CharSet::of('\t');
    case 'f':
      skip();
      return CharSet::of('\f');
    case 'v':
      skip();
      return CharSet::of('\v');
    case 'a':
      if (ecma()) break;
      skip();
      return CharSet::of('\a');
    case 'e':
      if (ecma()) break;
      skip();
      return CharSet::of(0x1B);
    case 'c': {
      skip();
      if (at_end() || !is_letter(peek())) return malformed("a letter must follow \\c");
      const auto letter = static_cast<std::uint32_t>(peek());
      skip();
      return CharSet::of(letter & 31);
    }
    case 'x': {
      skip();
      if (take('{')) {
        DI_ASSIGN(const std::uint32_t v, braced_hex());
        return one(v);
      }
      DI_ASSIGN(const std::uint32_t v, hex(2));
      return one(v);
    }
    case 'u': {
      skip();
      if (take('{')) {
        DI_ASSIGN(const std::uint32_t v, braced_hex());
        return one(v);
      }
      DI_ASSIGN(std::uint32_t v, hex(4));
      if (v >= 0xD800 && v < 0xDC00) {  // a surrogate pair spelled as two escapes is one character
        const std::size_t before = pos_;
        if (take_text("\\u")) {
          Result<std::uint32_t> low = hex(4);
          if (low.ok() && low.value() >= 0xDC00 && low.value() < 0xE000) {
            v = 0x10000 + ((v - 0xD800) << 10) + (low.value() - 0xDC00);
          } else {
            pos_ = before;
          }
        }
      }
      return one(v);
    }
    case 'U': {
      if (ecma()) break;
      skip();
      if (take('{')) {
        DI_ASSIGN(const std::uint32_t v, braced_hex());
        return one(v);
      }
      DI_ASSIGN(const std::uint32_t v, hex(8));
      if (v > kMaxCodePoint) return malformed("a code point is too large");
      return one(v);
    }
    case 'b':
      if (in_class) {
        skip();
        return CharSet::of('\b');
      }
      return refused("a word boundary (\\b)");
    case 'B':
      return refused("a word boundary (\\B)");
    case 'k':
      return refused("a back-reference (\\k)");
    case 'g':
      return refused("a back-reference (\\g)");
    case 'A':
    case 'z':
    case 'Z':
    case 'G':
      return refused(fmt::format("the assertion \\{} here", c));
    case '0':
      skip();
      if (!at_end() && is_digit(peek())) return refused("an octal escape");
      return CharSet::of(0);
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9':
      return refused(in_class ? "an octal escape" : "a back-reference");
    default:
      break;
  }
  if (is_letter(c)) return malformed(fmt::format("unknown escape \\{}", c));
  DI_ASSIGN(const std::uint32_t v, code_point());
  return one(v);
}

CharSet RegexReader::dot() const {
  if (flags.dot_all) return CharSet::all();
  CharSet excluded = CharSet::of('\n');
  if (ecma()) {
    excluded.add('\r', '\r');
    excluded.add(0x2028, 0x2029);
  }
  return excluded.negated();
}

bool RegexReader::posix_class(CharSet& out) {
  struct Entry {
    std::string_view name, ranges;  // pairs of first and last
  };
  static constexpr std::array<Entry, 14> kClasses{{{"alnum", "09AZaz"},
                                                   {"alpha", "AZaz"},
                                                   {"ascii", ""},
                                                   {"blank", "\t\t  "},
                                                   {"cntrl", ""},
                                                   {"digit", "09"},
                                                   {"graph", "!~"},
                                                   {"lower", "az"},
                                                   {"print", " ~"},
                                                   {"punct", "!/:@[`{~"},
                                                   {"space", "\t\r  "},
                                                   {"upper", "AZ"},
                                                   {"word", "09AZaz__"},
                                                   {"xdigit", "09AFaf"}}};
  const std::size_t end = text_.find(":]", pos_);
  if (!text_.substr(pos_).starts_with("[:") || end == std::string_view::npos) return false;
  std::string_view name = text_.substr(pos_ + 2, end - pos_ - 2);
  const bool negated = name.starts_with("^");
  if (negated) name.remove_prefix(1);
  for (const Entry& e : kClasses) {
    if (e.name != name) continue;
    CharSet set;
    if (name == "ascii") set.add(0, 127);
    if (name == "cntrl") set.add(0, 31), set.add(127, 127);
    for (std::size_t i = 0; i < e.ranges.size(); i += 2)
      set.add(static_cast<std::uint8_t>(e.ranges[i]), static_cast<std::uint8_t>(e.ranges[i + 1]));
    set = folded(set);
    out = negated ? set.negated() : set;
    pos_ = end + 2;
    return true;
  }
  return false;
}

Result<CharSet> RegexReader::class_item(int depth, bool& is_single) {
  is_single = false;
  if (peek() == '[' && !ecma()) {
    CharSet set;
    if (posix_class(set)) return set;
    return bracket_class(depth + 1);
  }
  if (peek() == '\\') {
    DI_ASSIGN(const CharSet set, escape(/*in_class=*/true));
    is_single = set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].second;
    return set;
  }
  DI_ASSIGN(const std::uint32_t c, code_point());
  is_single = true;
  return CharSet::of(c);
}

Result<CharSet> RegexReader::bracket_class(int depth) {
  if (depth > kMaxClassNesting) return malformed("classes are nested too deep");
  take('[');
  const bool negated = take('^');
  CharSet result, current;
  char operation = 0;  // pending set operation on `result`
  bool first = true;
  // Case folding happens once at the end, so that ranges see the letters as written.
  const bool fold = flags.ignore_case;
  flags.ignore_case = false;
  const auto close = [&] {
    CharSet operand = current;
    if (fold) operand = operand.case_folded(flags.unicode || ecma());
    if (operation == 0) result = operand;
    if (operation == '&') result = result.intersected(operand);
    if (operation == '-') result = result.minus(operand);
    if (operation == '~') {
      CharSet both = result.intersected(operand);
      result.add(operand);
      result = result.minus(both);
    }
    current = CharSet();
  };
  while (true) {
    if (!ecma()) skip_verbose_space();
    if (at_end()) return malformed("a character class is not closed");
    if (peek() == ']' && (!first || ecma())) {
      skip();
      break;
    }
    first = false;
    if (!ecma() && (take_text("&&") || take_text("--") || take_text("~~"))) {
      const char op = text_[pos_ - 1];
      close();
      operation = op;
      continue;
    }
    bool low_single = false;
    DI_ASSIGN(const CharSet low, class_item(depth, low_single));
    const bool dash = pos_ + 1 < text_.size() && peek() == '-' && text_[pos_ + 1] != ']' &&
                      (ecma() || text_[pos_ + 1] != '-');
    if (!dash) {
      current.add(low);
      continue;
    }
    const std::size_t dash_at = pos_;
    skip();
    bool high_single = false;
    DI_ASSIGN(const CharSet high, class_item(depth, high_single));
    if (low_single && high_single) {
      const std::uint32_t a = low.ranges()[0].first, b = high.ranges()[0].first;
      if (a > b) {
        pos_ = dash_at;
        return malformed("a character range is out of order");
      }
      current.add(a, b);
    } else if (ecma()) {  // [\w-x]: the dash is plain
      current.add(low);
      current.add(high);
      current.add('-', '-');
    } else {
      pos_ = dash_at;
      return malformed("a character range has a class as its border");
    }
  }
  close();
  flags.ignore_case = fold;
  return negated ? result.negated() : result;
}

Status RegexReader::group_name() {
  const std::size_t end = text_.find('>', pos_);
  if (end == std::string_view::npos || end == pos_) return malformed("a group name is not closed");
  pos_ = end + 1;
  return {};
}

Status RegexReader::inline_flags() {
  bool on = true;
  while (!at_end() && peek() != ')' && peek() != ':') {
    switch (peek()) {
      case '-':
        on = false;
        break;
      case 'i':
        flags.ignore_case = on;
        break;
      case 's':
        flags.dot_all = on;
        break;
      case 'x':
        flags.verbose = on;
        break;
      case 'u':
        flags.unicode = on;
        break;
      case 'a':
        flags.unicode = !on;
        break;
      case 'U':
        break;  // swaps lazy and greedy: the same language
      case 'm':
        if (on) return refused("multi-line mode (?m)");
        break;
      case 'R':
        if (on) return refused("CRLF mode (?R)");
        break;
      default:
        return malformed(fmt::format("unknown flag or kind of group '{}'", peek()));
    }
    skip();
  }
  return {};
}

}  // namespace deepinfer::grammar
