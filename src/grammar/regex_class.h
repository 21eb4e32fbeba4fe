// The characters of a pattern: code points, escapes, bracket classes, counts and inline flags. Internal to
// the regex parser; reads forward only and knows nothing of sequences and groups.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "grammar/charset.h"
#include "grammar/regex_parser.h"

namespace deepinfer::grammar {

struct RegexFlags {
  bool ignore_case = false, dot_all = false, verbose = false, unicode = false;
};

class RegexReader {
 public:
  RegexReader(std::string_view text, const RegexOptions& options)
      : flags{options.ignore_case, options.dot_all, options.verbose, options.unicode_classes},
        text_(text),
        syntax_(options.syntax) {}

  RegexFlags flags;

  bool ecma() const { return syntax_ == RegexSyntax::kEcma; }
  bool at_end() const { return pos_ >= text_.size(); }
  char peek() const { return text_[pos_]; }  // not at the end
  void skip() { ++pos_; }
  bool take(char c) {
    if (at_end() || text_[pos_] != c) return false;
    ++pos_;
    return true;
  }
  bool take_text(std::string_view s) {
    if (!text_.substr(pos_).starts_with(s)) return false;
    pos_ += s.size();
    return true;
  }
  void skip_verbose_space();

  Result<std::uint32_t> code_point();
  /// {m}, {m,}, {m,n}, {,n}. False: not a count, so the brace is plain text (position unchanged).
  Result<bool> counts(std::uint32_t& min, std::uint32_t& max);
  /// At a backslash. One character or a class.
  Result<CharSet> escape(bool in_class);
  /// At '['.
  Result<CharSet> bracket_class() { return bracket_class(0); }
  CharSet dot() const;
  /// With case variants when the flag is on.
  CharSet folded(const CharSet& set) const {
    return flags.ignore_case ? set.case_folded(flags.unicode || ecma()) : set;
  }
  Status group_name();
  Status inline_flags();

  Error malformed(std::string what) const;
  Error refused(std::string_view what) const;

 private:
  Result<CharSet> bracket_class(int depth);
  Result<CharSet> class_item(int depth, bool& is_single);
  Result<CharSet> property(bool negated);
  Result<std::uint32_t> hex(int digits);
  Result<std::uint32_t> braced_hex();
  bool posix_class(CharSet& out);

  std::string_view text_;
  std::size_t pos_ = 0;
  RegexSyntax syntax_;
};

}  // namespace deepinfer::grammar
