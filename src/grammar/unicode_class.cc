// Unicode properties and case folding, from ICU's character database.
#include <unicode/uchar.h>
#include <unicode/uscript.h>
#include <unicode/uset.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>

#include "grammar/charset.h"

namespace deepinfer::grammar {
namespace {

struct SetCloser {
  void operator()(USet* set) const { uset_close(set); }
};
using SetPtr = std::unique_ptr<USet, SetCloser>;

void add_ranges(const USet* set, CharSet& out) {
  const int32_t count = uset_getItemCount(set);
  for (int32_t i = 0; i < count; ++i) {
    UChar32 first = 0, last = 0;
    UErrorCode error = U_ZERO_ERROR;
    if (uset_getItem(set, i, &first, &last, nullptr, 0, &error) == 0 && U_SUCCESS(error))
      out.add(static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(last));
  }
}

bool from_int_property(UProperty property, int32_t value, CharSet& out) {
  SetPtr set(uset_openEmpty());
  UErrorCode error = U_ZERO_ERROR;
  uset_applyIntPropertyValue(set.get(), property, value, &error);
  if (U_FAILURE(error)) return false;
  add_ranges(set.get(), out);
  return true;
}

bool category(const std::string& name, CharSet& out) {
  const int32_t mask = u_getPropertyValueEnum(UCHAR_GENERAL_CATEGORY_MASK, name.c_str());
  return mask != UCHAR_INVALID_CODE && from_int_property(UCHAR_GENERAL_CATEGORY_MASK, mask, out);
}

bool script(const std::string& name, CharSet& out) {
  const int32_t value = u_getPropertyValueEnum(UCHAR_SCRIPT, name.c_str());
  return value != UCHAR_INVALID_CODE && from_int_property(UCHAR_SCRIPT, value, out);
}

bool binary(const std::string& name, CharSet& out) {
  const UProperty property = u_getPropertyEnum(name.c_str());
  if (property < UCHAR_BINARY_START || property >= UCHAR_BINARY_LIMIT) return false;
  return from_int_property(property, 1, out);
}

}  // namespace

bool CharSet::unicode_property(std::string_view name, CharSet& out) {
  if (name.empty() || name.size() > 64) return false;
  for (char c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '=' && c != ' ' && c != '-' &&
        c != ':')
      return false;
  const std::size_t equals = name.find_first_of("=:");
  if (equals != std::string_view::npos) {
    std::string key(name.substr(0, equals));
    const std::string value(name.substr(equals + 1));
    std::erase_if(key, [](char c) { return c == '_' || c == ' ' || c == '-'; });
    std::transform(key.begin(), key.end(), key.begin(), [](unsigned char c) { return std::tolower(c); });
    if (key == "gc" || key == "generalcategory") return category(value, out);
    if (key == "sc" || key == "script") return script(value, out);
    if (key == "scx" || key == "scriptextensions") {
      const int32_t code = u_getPropertyValueEnum(UCHAR_SCRIPT, value.c_str());
      return code != UCHAR_INVALID_CODE && from_int_property(UCHAR_SCRIPT_EXTENSIONS, code, out);
    }
    const UProperty other = u_getPropertyEnum(key.c_str());
    if (other < UCHAR_INT_START || other >= UCHAR_INT_LIMIT) return false;
    const int32_t code = u_getPropertyValueEnum(other, value.c_str());
    return code != UCHAR_INVALID_CODE && from_int_property(other, code, out);
  }
  const std::string plain(name);
  if (plain == "Any" || plain == "any") {
    out.add(0, kMaxCodePoint);
    return true;
  }
  if (plain == "ASCII" || plain == "ascii") {
    out.add(0, 0x7F);
    return true;
  }
  if (plain == "Assigned") {
    CharSet unassigned;
    if (!category("Cn", unassigned)) return false;
    out.add(unassigned.negated());
    return true;
  }
  return category(plain, out) || script(plain, out) || binary(plain, out);
}

CharSet CharSet::digits(bool unicode) {
  if (!unicode) return range('0', '9');
  CharSet out;
  unicode_property("Nd", out);
  return out;
}

CharSet CharSet::word(bool unicode) {
  CharSet out;
  if (unicode) {
    for (const char* p : {"Alphabetic", "M", "Nd", "Pc", "Join_Control"}) unicode_property(p, out);
    return out;
  }
  out.add('0', '9');
  out.add('A', 'Z');
  out.add('_', '_');
  out.add('a', 'z');
  return out;
}

CharSet CharSet::space(bool unicode) {
  CharSet out;
  if (unicode) {
    unicode_property("White_Space", out);
    return out;
  }
  out.add('\t', '\r');
  out.add(' ', ' ');
  return out;
}

CharSet CharSet::case_folded(bool unicode) const {
  CharSet out;
  out.add(*this);
  if (!unicode) {
    for (const Range& r : ranges()) {
      for (std::uint32_t c = r.first; c <= std::min<std::uint32_t>(r.second, 'z'); ++c) {
        if (c >= 'a' && c <= 'z') out.add(c - 32, c - 32);
        if (c >= 'A' && c <= 'Z') out.add(c + 32, c + 32);
      }
    }
    return out;
  }
  SetPtr set(uset_openEmpty());
  for (const Range& r : ranges())
    uset_addRange(set.get(), static_cast<UChar32>(r.first), static_cast<UChar32>(r.second));
  uset_closeOver(set.get(), USET_CASE_INSENSITIVE);
  add_ranges(set.get(), out);
  return out;
}

}  // namespace deepinfer::grammar
