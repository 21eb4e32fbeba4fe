#include "grammar/schema/string_algebra.h"

#include <algorithm>
#include <array>

#include "grammar/regex_parser.h"

namespace deepinfer::schema {
namespace {

using grammar::ByteSet;
using grammar::CharSet;
using grammar::kUnbounded;
using grammar::RegexId;
using grammar::RegexPool;

constexpr std::uint32_t kEmptinessFuel = 4000;

struct ShortEscape {
  std::uint32_t code_point;
  char letter;
};
constexpr std::array<ShortEscape, 7> kPlainEscapes = {
    {{'"', '"'}, {'\\', '\\'}, {8, 'b'}, {12, 'f'}, {10, 'n'}, {13, 'r'}, {9, 't'}}};

char hex_digit(std::uint32_t value) {
  return "0123456789abcdef"[value & 15];
}

// What RFC 8259 lets stand unescaped.
CharSet unescaped() {
  CharSet set = CharSet::range(0x20, 0x21);
  set.add(0x23, 0x5B);
  set.add(0x5D, 0xD7FF);
  set.add(0xE000, grammar::kMaxCodePoint);
  return set;
}

// The plain spelling of one code point that needs an escape.
std::string escape(std::uint32_t code_point) {
  for (const ShortEscape& e : kPlainEscapes) {
    if (e.code_point == code_point) return std::string("\\") + e.letter;
  }
  return std::string("\\u00") + hex_digit(code_point >> 4) + hex_digit(code_point);
}

std::uint32_t bound(std::int64_t value) {
  return value >= std::int64_t{kUnbounded} ? kUnbounded : static_cast<std::uint32_t>(value);
}

}  // namespace

std::string StringAlgebra::spell(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || c == '"' || c == '\\')
      out += escape(byte);
    else
      out += c;
  }
  return out;
}

std::int64_t StringAlgebra::length(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

RegexId StringAlgebra::plain_chars(const CharSet& set) {
  std::vector<RegexId> choices;
  if (const CharSet raw = set.intersected(unescaped()); !raw.empty()) choices.push_back(pool_.chars(raw));
  for (std::uint32_t c = 0; c <= '\\'; ++c) {
    const bool escaped = c < 0x20 || c == '"' || c == '\\';
    if (escaped && set.contains(c)) choices.push_back(pool_.literal(escape(c)));
  }
  return pool_.alt(choices);
}

RegexId StringAlgebra::plain_char() {
  if (plain_char_ == 0) plain_char_ = plain_chars(CharSet::all());
  return plain_char_;
}

LanguageId StringAlgebra::plain_any() {
  if (plain_any_ == 0) plain_any_ = pool_.star(plain_char());
  return plain_any_;
}

RegexId StringAlgebra::free_char() {
  if (free_char_ != 0) return free_char_;
  const RegexId hex = pool_.bytes(ByteSet::any_of("0123456789abcdefABCDEF"));
  const RegexId d = pool_.bytes(ByteSet::any_of("dD"));
  // \uXXXX outside of D800..DFFF, or a high and a low surrogate.
  const RegexId single = pool_.alt({
      pool_.concat({pool_.bytes(ByteSet::any_of("0123456789abcefABCEF")), hex, hex, hex}),
      pool_.concat({d, pool_.bytes(ByteSet::any_of("01234567")), hex, hex}),
  });
  const RegexId pair =
      pool_.concat({d, pool_.bytes(ByteSet::any_of("89abAB")), hex, hex, pool_.literal("\\u"), d,
                    pool_.bytes(ByteSet::any_of("cdefCDEF")), hex, hex});
  free_char_ = pool_.alt({
      pool_.chars(unescaped()),
      pool_.concat(pool_.byte('\\'), pool_.alt({pool_.bytes(ByteSet::any_of("\"\\/bfnrt")),
                                                pool_.concat(pool_.byte('u'), pool_.alt({single, pair}))})),
  });
  return free_char_;
}

RegexId StringAlgebra::counted(RegexId character, const StringBranch& branch) {
  return pool_.repeat(character, bound(branch.min_length), bound(branch.max_length));
}

RegexId StringAlgebra::body(const StringBranch& branch) {
  if (!branch.one_of && branch.languages.empty() && branch.none_of.empty())
    return counted(free_char(), branch);
  return language(branch);
}

LanguageId StringAlgebra::language(const StringBranch& branch) {
  if (branch.one_of) {
    std::vector<RegexId> choices;
    for (const std::string& text : *branch.one_of) choices.push_back(pool_.literal(spell(text)));
    return pool_.alt(choices);
  }
  std::vector<RegexId> parts(branch.languages.begin(), branch.languages.end());
  const bool bounded = branch.min_length > 0 || branch.max_length != kNoLimit;
  if (bounded || parts.empty()) parts.push_back(counted(plain_char(), branch));
  if (!branch.none_of.empty()) {
    std::vector<RegexId> names;
    for (const std::string& text : branch.none_of) names.push_back(pool_.literal(spell(text)));
    parts.push_back(pool_.complement(pool_.alt(names)));
  }
  return pool_.all_of(parts);
}

Result<LanguageId> StringAlgebra::pattern(const std::string& text) {
  if (const auto known = patterns_.find(text); known != patterns_.end()) return known->second;
  grammar::RegexOptions options;
  options.syntax = grammar::RegexSyntax::kEcma;
  options.search = true;
  options.spell = [this](const CharSet& set) { return plain_chars(set); };
  auto language = grammar::parse_regex(pool_, text, options);
  if (!language.ok()) {
    Error error = language.error();
    error.message = "the pattern '" + text + "' " + (error.where.empty() ? "" : "at " + error.where + " ") +
                    "is refused: " + error.message;
    error.where.clear();
    return error;
  }
  patterns_.emplace(text, *language);
  return *language;
}

LanguageId StringAlgebra::complement(LanguageId language) {
  return pool_.minus(plain_any(), language);
}

LanguageId StringAlgebra::complement(const std::vector<StringBranch>& branches) {
  std::vector<RegexId> parts;
  for (const StringBranch& branch : branches) parts.push_back(language(branch));
  return complement(pool_.alt(parts));
}

Result<std::optional<LanguageId>> StringAlgebra::format(const std::string& name) {
  const FormatPattern* known = format_pattern(name);
  if (known == nullptr) return std::optional<LanguageId>();
  if (const auto made = formats_.find(name); made != formats_.end())
    return std::optional<LanguageId>(made->second);
  DI_ASSIGN(LanguageId language, pattern(known->pattern));
  if (!known->also.empty()) {
    DI_ASSIGN(const LanguageId also, pattern(known->also));
    language = pool_.all_of({language, also});
  }
  if (!known->never.empty()) {
    DI_ASSIGN(const LanguageId never, pattern(known->never));
    language = pool_.minus(language, never);
  }
  formats_.emplace(name, language);
  return std::optional<LanguageId>(language);
}

bool StringAlgebra::contains(const StringBranch& branch, const std::string& text) {
  if (branch.one_of && !branch.one_of->contains(text)) return false;
  if (branch.none_of.contains(text)) return false;
  if (branch.min_length > 0 || branch.max_length != kNoLimit) {
    const std::int64_t count = length(text);
    if (count < branch.min_length || count > branch.max_length) return false;
  }
  if (branch.languages.empty()) return true;
  const std::string spelled = spell(text);
  return std::all_of(branch.languages.begin(), branch.languages.end(),
                     [&](LanguageId language) { return pool_.matches(language, spelled); });
}

bool StringAlgebra::surely_empty(const StringBranch& branch) {
  if (branch.one_of) return branch.one_of->empty();
  if (branch.min_length > branch.max_length) return true;
  if (branch.languages.empty()) return false;
  const bool bounded = branch.min_length > 0 || branch.max_length != kNoLimit;
  if (branch.languages.size() == 1 && !bounded && branch.none_of.empty()) {
    return branch.languages[0] == grammar::kEmptyRegex;
  }
  const auto empty = pool_.is_empty(language(branch), kEmptinessFuel);
  return empty.ok() && *empty;
}

}  // namespace deepinfer::schema
