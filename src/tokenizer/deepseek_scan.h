// The split rules of the DeepSeek tokenizers as one hand-written pass. They are three isolating splits, each
// applied inside the pieces of the one before:
//   1. \p{N}{1,3}
//   2. runs of U+4E00-9FA5, U+3040-309F, U+30A0-30FF
//   3. the first of these that matches:  ASCII punctuation, then ASCII letters
//                                        any one character but CR LF \p{L}\p{P}\p{S}, optional, then
//                                        [\p{L}\p{M}]+ optional space, [\p{P}\p{S}]+, [\r\n]* \s*[\r\n]+
//                                        \s+(?!\S)      \s+
// Text between matches is a piece too. A rule never looks beyond the piece it works in: to rule 3, a digit or
// the border of a kana/ideograph run is the end of the text. Equality with the regular expressions themselves
// is tested piece by piece. Cost: about one table look-up a character. No state; any thread.
#pragma once

#include <cstddef>
#include <string_view>

#include "tokenizer/unicode_class.h"
#include "tokenizer/utf8.h"

namespace deepinfer {

/// Walks over well-formed UTF-8 and hands every piece, in order and without gaps, to
/// `emit(std::string_view)`.
template <class Emit>
class DeepSeekScan {
 public:
  DeepSeekScan(std::string_view text, Emit& emit)
      : table_(unicode::ClassTable::instance()), end_(text.data() + text.size()), emit_(emit) {}

  void run(const char* p) {
    while (p != end_) {
      const Char c = read(p);
      if (c.flags & unicode::kNumber) {
        p = number(p, c.next);
      } else {
        p = segment(p, is_kana_or_ideograph(c.code_point));
      }
    }
  }

 private:
  struct Char {
    char32_t code_point = 0;
    unicode::ClassFlags flags = 0;
    bool inside = false;  // false: the segment ends before this character
    const char* next = nullptr;
  };

  static constexpr unicode::ClassFlags kWordFlags = unicode::kLetter | unicode::kMark;
  static constexpr unicode::ClassFlags kPunctuationFlags = unicode::kPunctuation | unicode::kSymbol;

  static bool is_kana_or_ideograph(char32_t c) {
    return (c >= 0x3040 && c <= 0x30FF) || (c >= 0x4E00 && c <= 0x9FA5);
  }

  Char read(const char* p) const {
    Char c;
    c.next = p;
    c.code_point = utf8::decode_trusted(c.next);
    c.flags = table_[c.code_point];
    c.inside = true;
    return c;
  }

  // The character at p as rule 3 sees it inside a segment of the given kind.
  Char peek(const char* p, bool kana) const {
    if (p == end_) return {};
    Char c = read(p);
    if ((c.flags & unicode::kNumber) || is_kana_or_ideograph(c.code_point) != kana) return {};
    return c;
  }

  const char* number(const char* first, const char* p) {
    for (int count = 1; count < 3 && p != end_; ++count) {
      const Char c = read(p);
      if (!(c.flags & unicode::kNumber)) break;
      p = c.next;
    }
    emit_(std::string_view(first, static_cast<std::size_t>(p - first)));
    return p;
  }

  const char* skip(const char* p, bool kana, unicode::ClassFlags flags) const {
    for (;;) {
      const Char c = peek(p, kana);
      if (!c.inside || !(c.flags & flags)) return p;
      p = c.next;
    }
  }

  const char* segment(const char* p, bool kana) {
    const char* gap = p;  // start of text no rule has matched
    for (;;) {
      const Char c = peek(p, kana);
      if (!c.inside) break;
      const char* match_end = match(p, c, kana);
      if (match_end == nullptr) {
        p = c.next;
        continue;
      }
      if (gap != p) emit_(std::string_view(gap, static_cast<std::size_t>(p - gap)));
      emit_(std::string_view(p, static_cast<std::size_t>(match_end - p)));
      gap = p = match_end;
    }
    if (gap != p) emit_(std::string_view(gap, static_cast<std::size_t>(p - gap)));
    return p;
  }

  // End of the match of rule 3 that begins at p, whose character is c; null when there is none.
  const char* match(const char* p, const Char& c, bool kana) const {
    if (c.flags & kWordFlags) return skip(c.next, kana, kWordFlags);
    if (c.flags & kPunctuationFlags) {
      if (c.code_point < 0x80) {
        const Char after = peek(c.next, kana);
        if (after.inside && (after.flags & unicode::kAsciiLetter)) {
          return skip(after.next, kana, unicode::kAsciiLetter);
        }
      }
      return skip(skip(c.next, kana, kPunctuationFlags), kana, unicode::kNewline);
    }
    if (!(c.flags & unicode::kNewline)) {
      const Char after = peek(c.next, kana);
      if (after.inside && (after.flags & kWordFlags)) return skip(after.next, kana, kWordFlags);
      if (c.code_point == ' ' && after.inside && (after.flags & kPunctuationFlags)) {
        return skip(skip(after.next, kana, kPunctuationFlags), kana, unicode::kNewline);
      }
      if (!(c.flags & unicode::kSpace)) return nullptr;
    }
    return white_space(p, kana);
  }

  const char* white_space(const char* p, bool kana) const {
    const char* after_newline = nullptr;
    const char* last = p;  // start of the run's last character
    const char* q = p;
    Char c;
    while ((c = peek(q, kana)).inside && (c.flags & unicode::kSpace)) {
      last = q;
      q = c.next;
      if (c.flags & unicode::kNewline) after_newline = q;
    }
    if (after_newline != nullptr) return after_newline;
    return !c.inside || last == p ? q : last;
  }

  const unicode::ClassTable& table_;
  const char* end_;
  Emit& emit_;
};

template <class Emit>
void deepseek_scan(std::string_view valid_text, Emit&& emit) {
  DeepSeekScan<std::remove_reference_t<Emit>>(valid_text, emit).run(valid_text.data());
}

}  // namespace deepinfer
