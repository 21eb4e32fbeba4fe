// Sets of strings as regular expressions over what stands between the quotes of a JSON string.
//
// Two spellings. *Plain*: every code point has exactly one spelling (itself; \" \\ \b \f \n \r \t; \u00xx in
// lower case for the other control characters). Names, constants, patterns and formats use it: a unique
// spelling makes Boolean operations on languages exact and lets a whole key be forced. *Free*: every escape
// of RFC 8259, surrogates in pairs; strings that are limited in length only use it. Lengths count code points
// in both.
//
// Works on one RegexPool; not thread-safe.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/regex_pool.h"
#include "grammar/schema/form.h"

namespace deepinfer::schema {

class StringAlgebra {
 public:
  explicit StringAlgebra(grammar::RegexPool& pool) : pool_(pool) {}

  grammar::RegexPool& pool() { return pool_; }

  /// One character of the set in plain spelling.
  grammar::RegexId plain_chars(const grammar::CharSet& set);
  /// Any one character: free spelling.
  grammar::RegexId free_char();
  /// Any one character: plain spelling.
  grammar::RegexId plain_char();
  /// Any string in plain spelling.
  LanguageId plain_any();

  /// The strings in which an ECMA-262 pattern is found somewhere (JSON Schema's search semantics).
  /// kUnsupported naming the construct for look-around and back-references.
  Result<LanguageId> pattern(const std::string& text);
  /// The strings of a format this engine knows; empty optional when the name is unknown to it.
  Result<std::optional<LanguageId>> format(const std::string& name);
  /// All strings outside of a language.
  LanguageId complement(LanguageId language);
  /// All strings outside of a union of branches.
  LanguageId complement(const std::vector<StringBranch>& branches);

  /// Between the quotes: every string of the branch. Free spelling when only lengths bind it, else plain.
  grammar::RegexId body(const StringBranch& branch);
  /// The same in plain spelling, as a language for Boolean operations.
  LanguageId language(const StringBranch& branch);

  bool contains(const StringBranch& branch, const std::string& text);
  bool surely_empty(const StringBranch& branch);

  /// The plain spelling of a string, without quotes.
  static std::string spell(std::string_view text);
  static std::int64_t length(std::string_view text);

 private:
  grammar::RegexId counted(grammar::RegexId character, const StringBranch& branch);

  grammar::RegexPool& pool_;
  grammar::RegexId free_char_ = 0, plain_char_ = 0, plain_any_ = 0;
  std::map<std::string, LanguageId> patterns_, formats_;
  std::map<std::vector<LanguageId>, bool> known_empty_;
};

/// A format: strings in which `pattern` is found, and `also` as well when it is given, and `never` is not.
struct FormatPattern {
  std::string pattern, also, never;
};
/// Null when the name is unknown; formats.cc documents each against its RFC.
const FormatPattern* format_pattern(const std::string& name);

}  // namespace deepinfer::schema
