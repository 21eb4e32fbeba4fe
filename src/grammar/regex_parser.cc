// Recursive descent over the pattern; nesting is limited before the C stack could be. Every parse function
// returns a Fragment instead of a tree: what the part matches in each of four contexts, so that ^ and $ are
// exact anywhere.
#include "grammar/regex_parser.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "grammar/regex_class.h"

namespace deepinfer::grammar {
namespace {

constexpr int kMaxNesting = 150;

// The language of a part by context: bit 0 = the part begins where the text begins, bit 1 = it ends where the
// text ends. Languages only grow with more bits. Without anchors all four are equal.
struct Fragment {
  RegexId by_context[4];
  bool anchored = false;

  static Fragment plain(RegexId x) { return {{x, x, x, x}, false}; }
};

class Parser {
 public:
  Parser(RegexPool& pool, std::string_view text, const RegexOptions& options)
      : pool_(pool), spell_(options.spell), reader_(text, options) {}

  Result<RegexId> run(bool search) {
    DI_ASSIGN(const Fragment f, alternatives());
    if (!reader_.at_end()) return reader_.malformed("unmatched )");
    if (pool_.exceeded()) return Error{ErrorCode::kDeadline, "the regular expression is too large", {}};
    if (!search) return f.by_context[3];
    const RegexId any = pool_.star(chars(CharSet::all()));
    return pool_.alt({pool_.concat({any, f.by_context[0], any}), pool_.concat(f.by_context[1], any),
                      pool_.concat(any, f.by_context[2]), f.by_context[3]});
  }

 private:
  Fragment concat(const Fragment& a, const Fragment& b) {
    if (!a.anchored && !b.anchored) return Fragment::plain(pool_.concat(a.by_context[0], b.by_context[0]));
    Fragment out;
    out.anchored = true;
    for (int c = 0; c < 4; ++c) {
      const int start = c & 1, end = c & 2;
      std::vector<RegexId> parts{pool_.concat(a.by_context[start], b.by_context[end])};
      // One side empty: the other one touches both borders.
      if (pool_.nullable(a.by_context[start])) parts.push_back(b.by_context[c]);
      if (pool_.nullable(b.by_context[end])) parts.push_back(a.by_context[c]);
      if (pool_.nullable(a.by_context[c]) && pool_.nullable(b.by_context[c])) parts.push_back(kEpsilonRegex);
      out.by_context[c] = pool_.alt(parts);
    }
    return out;
  }

  Fragment alt(const std::vector<Fragment>& parts) {
    Fragment out;
    for (const Fragment& p : parts) out.anchored = out.anchored || p.anchored;
    for (int c = 0; c < 4; ++c) {
      std::vector<RegexId> ids;
      for (const Fragment& p : parts) ids.push_back(p.by_context[c]);
      out.by_context[c] = pool_.alt(ids);
    }
    return out;
  }

  Fragment repeat(const Fragment& a, std::uint32_t min, std::uint32_t max) {
    if (!a.anchored) return Fragment::plain(pool_.repeat(a.by_context[0], min, max));
    if (max == 0) return Fragment::plain(kEpsilonRegex);
    Fragment out;
    out.anchored = true;
    for (int c = 0; c < 4; ++c) {
      const int start = c & 1, end = c & 2;
      // An iteration that can be empty here makes any smaller count possible.
      const std::uint32_t least = pool_.nullable(a.by_context[c]) ? 0 : min;
      std::vector<RegexId> parts;
      if (least == 0) parts.push_back(kEpsilonRegex);
      if (least <= 1) parts.push_back(a.by_context[c]);
      if (max >= 2) {
        const std::uint32_t inner_max = max == kUnbounded ? kUnbounded : max - 2;
        parts.push_back(pool_.concat({a.by_context[start],
                                      pool_.repeat(a.by_context[0], least < 2 ? 0 : least - 2, inner_max),
                                      a.by_context[end]}));
      }
      out.by_context[c] = pool_.alt(parts);
    }
    return out;
  }

  Result<Fragment> alternatives() {
    if (++depth_ > kMaxNesting)
      return reader_.malformed(fmt::format("groups are nested deeper than {}", kMaxNesting));
    const RegexFlags outer = reader_.flags;
    std::vector<Fragment> parts;
    while (true) {
      DI_ASSIGN(Fragment part, sequence());
      parts.push_back(part);
      if (!reader_.take('|')) break;
    }
    reader_.flags = outer;
    --depth_;
    return parts.size() == 1 ? parts[0] : alt(parts);
  }

  Result<Fragment> sequence() {
    std::vector<Fragment> parts;
    while (true) {
      reader_.skip_verbose_space();
      if (reader_.at_end() || reader_.peek() == '|' || reader_.peek() == ')') break;
      DI_ASSIGN(std::optional<Fragment> item, atom());
      if (!item) continue;  // an inline flag setting
      DI_ASSIGN(Fragment repeated, quantified(*item));
      parts.push_back(repeated);
    }
    // From the right, so that long literals build in linear time.
    Fragment out = Fragment::plain(kEpsilonRegex);
    for (std::size_t i = parts.size(); i-- > 0;) out = concat(parts[i], out);
    return out;
  }

  Result<Fragment> quantified(Fragment item) {
    while (true) {
      reader_.skip_verbose_space();
      std::uint32_t min = 0, max = 0;
      if (reader_.take('*')) {
        max = kUnbounded;
      } else if (reader_.take('+')) {
        min = 1, max = kUnbounded;
      } else if (reader_.take('?')) {
        max = 1;
      } else if (!reader_.at_end() && reader_.peek() == '{') {
        DI_ASSIGN(const bool counted, reader_.counts(min, max));
        if (!counted) return item;
      } else {
        return item;
      }
      if (reader_.take('?')) {
        // lazy: the same language
      } else if (!reader_.at_end() && reader_.peek() == '+') {
        return reader_.refused("possessive repetition");
      }
      item = repeat(item, min, max);
      if (pool_.exceeded()) return Error{ErrorCode::kDeadline, "the regular expression is too large", {}};
    }
  }

  Result<std::optional<Fragment>> atom() {
    using Out = std::optional<Fragment>;
    const char c = reader_.peek();
    switch (c) {
      case '(':
        return group();
      case '[': {
        DI_ASSIGN(const CharSet set, reader_.bracket_class());
        return Out(Fragment::plain(chars(set)));
      }
      case '.':
        reader_.take('.');
        return Out(Fragment::plain(chars(reader_.dot())));
      case '^':
        reader_.take('^');
        return Out(anchor(1));
      case '$':
        reader_.take('$');
        return Out(anchor(2));
      case '*':
      case '+':
      case '?':
        return reader_.malformed("nothing to repeat");
      case '{':
        if (!reader_.ecma()) {
          std::uint32_t min = 0, max = 0;
          DI_ASSIGN(const bool counted, reader_.counts(min, max));
          if (counted) return reader_.malformed("nothing to repeat");
        }
        break;
      case '\\': {
        if (reader_.take_text("\\A")) return Out(anchor(1));
        if (reader_.take_text("\\z")) return Out(anchor(2));
        DI_ASSIGN(const CharSet set, reader_.escape(/*in_class=*/false));
        return Out(Fragment::plain(chars(set)));
      }
      default:
        break;
    }
    DI_ASSIGN(const std::uint32_t code_point, reader_.code_point());
    return Out(Fragment::plain(chars(reader_.folded(CharSet::of(code_point)))));
  }

  // The empty string where the context bit holds, nothing elsewhere.
  static Fragment anchor(int bit) {
    Fragment f;
    f.anchored = true;
    for (int c = 0; c < 4; ++c) f.by_context[c] = (c & bit) ? kEpsilonRegex : kEmptyRegex;
    return f;
  }

  Result<std::optional<Fragment>> group() {
    reader_.take('(');
    const RegexFlags outer = reader_.flags;
    if (reader_.take('?')) {
      if (reader_.take('=') || reader_.take('!')) return reader_.refused("look-ahead");
      if (reader_.take_text("<=") || reader_.take_text("<!")) return reader_.refused("look-behind");
      if (reader_.take('>')) return reader_.refused("an atomic group");
      if (reader_.take('(')) return reader_.refused("a conditional");
      if (reader_.take('|')) return reader_.refused("a branch reset group");
      if (reader_.take_text("P=") || reader_.take_text("P>")) return reader_.refused("a back-reference");
      if (reader_.take('#')) {
        while (!reader_.at_end() && reader_.peek() != ')') reader_.skip();
        if (!reader_.take(')')) return reader_.malformed("a comment is not closed");
        return std::optional<Fragment>();
      }
      if (reader_.take_text("P<") || reader_.take('<')) {
        DI_TRY(reader_.group_name());
      } else if (!reader_.take(':')) {
        DI_TRY(reader_.inline_flags());
        if (reader_.take(')')) return std::optional<Fragment>();  // holds to the end of the enclosing group
        if (!reader_.take(':')) return reader_.malformed("unknown kind of group");
      }
    }
    DI_ASSIGN(const Fragment inner, alternatives());
    reader_.flags = outer;
    if (!reader_.take(')')) return reader_.malformed("a group is not closed");
    return std::optional<Fragment>(inner);
  }

  RegexId chars(const CharSet& set) { return spell_ ? spell_(set) : pool_.chars(set); }

  RegexPool& pool_;
  const std::function<RegexId(const CharSet&)>& spell_;
  RegexReader reader_;
  int depth_ = 0;
};

}  // namespace

Result<RegexId> parse_regex(RegexPool& pool, std::string_view pattern, const RegexOptions& options) {
  if (pattern.size() > kMaxRegexBytes)
    return invalid_argument(fmt::format("the regular expression is longer than {} bytes", kMaxRegexBytes));
  return Parser(pool, pattern, options).run(options.search);
}

}  // namespace deepinfer::grammar
