// Reads a regular expression as people write it and builds it in a RegexPool.
//
// Supported: alternatives, groups (capturing, named, non-capturing), classes, escapes, \d \w \s, \p{...},
// counted and lazy repetition (laziness has no meaning for a language), ^ and $ anywhere, inline flags i, s,
// u, x. Refused by name with kUnsupported: back-references, look-around, word boundaries, atomic groups,
// possessive repetition, conditionals, multi-line mode. Malformed text gives kInvalidArgument. Errors carry
// "offset N" as their place.
#pragma once

#include <functional>
#include <string_view>

#include "base/result.h"
#include "grammar/regex_pool.h"

namespace deepinfer::grammar {

enum class RegexSyntax {
  kEcma,     // JSON Schema: ECMA-262 with the u flag where it matters; \d \w are ASCII, [ is plain inside a
             // class, an invalid {..} is plain text, . excludes the four line terminators
  kGeneral,  // as in Rust and Python: nested classes with && -- ~~, [:alpha:], (?x), . excludes \n
};

struct RegexOptions {
  RegexSyntax syntax = RegexSyntax::kGeneral;
  bool search = false;           // the pattern may occur anywhere (JSON Schema); false: it is the whole text
  bool unicode_classes = false;  // \d \w \s and case folding by Unicode rather than ASCII
  bool ignore_case = false;
  bool dot_all = false;  // . matches line terminators too
  bool verbose = false;  // x: white space and # comments are skipped
  /// How one character out of a set is written where the text stands; UTF-8 when absent. A front end whose
  /// texts are escaped (JSON strings) gives its own. Must be uniquely decodable, or complements lose their
  /// meaning.
  std::function<RegexId(const CharSet&)> spell = {};
};

inline constexpr std::size_t kMaxRegexBytes = 1 << 20;

/// The texts (valid UTF-8) that `pattern` matches. A pattern that can match nothing gives kEmptyRegex.
Result<RegexId> parse_regex(RegexPool& pool, std::string_view pattern, const RegexOptions& options = {});

}  // namespace deepinfer::grammar
