// Sets of bytes and sets of Unicode code points. Both are plain values; a CharSet is kept as sorted,
// disjoint, non-adjacent ranges. Turning a CharSet into UTF-8 byte sequences is RegexPool::chars
// (regex_pool.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepinfer::grammar {

/// A set of byte values, 32 bytes.
struct ByteSet {
  std::array<std::uint64_t, 4> words{};

  static ByteSet all() { return {{~0ull, ~0ull, ~0ull, ~0ull}}; }
  static ByteSet of(std::uint8_t byte) {
    ByteSet s;
    s.set(byte);
    return s;
  }
  static ByteSet range(std::uint8_t first, std::uint8_t last) {
    ByteSet s;
    for (int b = first; b <= last; ++b) s.set(static_cast<std::uint8_t>(b));
    return s;
  }
  /// Every byte of `text`.
  static ByteSet any_of(std::string_view text) {
    ByteSet s;
    for (char c : text) s.set(static_cast<std::uint8_t>(c));
    return s;
  }

  bool test(std::uint8_t byte) const { return (words[byte >> 6] >> (byte & 63)) & 1; }
  void set(std::uint8_t byte) { words[byte >> 6] |= 1ull << (byte & 63); }
  void reset(std::uint8_t byte) { words[byte >> 6] &= ~(1ull << (byte & 63)); }
  bool empty() const { return (words[0] | words[1] | words[2] | words[3]) == 0; }
  int count() const {
    return __builtin_popcountll(words[0]) + __builtin_popcountll(words[1]) + __builtin_popcountll(words[2]) +
           __builtin_popcountll(words[3]);
  }
  /// The smallest member; the set must not be empty.
  std::uint8_t first() const {
    for (int w = 0; w < 4; ++w)
      if (words[w]) return static_cast<std::uint8_t>(w * 64 + __builtin_ctzll(words[w]));
    return 0;
  }
  bool operator==(const ByteSet&) const = default;
  ByteSet operator~() const { return {{~words[0], ~words[1], ~words[2], ~words[3]}}; }
  ByteSet& operator&=(const ByteSet& o) {
    for (int w = 0; w < 4; ++w) words[w] &= o.words[w];
    return *this;
  }
  ByteSet& operator|=(const ByteSet& o) {
    for (int w = 0; w < 4; ++w) words[w] |= o.words[w];
    return *this;
  }
  friend ByteSet operator&(ByteSet a, const ByteSet& b) { return a &= b; }
  friend ByteSet operator|(ByteSet a, const ByteSet& b) { return a |= b; }
};

inline constexpr std::uint32_t kMaxCodePoint = 0x10FFFF;

/// A set of code points. Surrogates may be members, but they have no UTF-8 form and never match.
class CharSet {
 public:
  using Range = std::pair<std::uint32_t, std::uint32_t>;  // first and last, both inside

  CharSet() = default;
  static CharSet all() { return range(0, kMaxCodePoint); }
  static CharSet range(std::uint32_t first, std::uint32_t last) {
    CharSet s;
    s.add(first, last);
    return s;
  }
  static CharSet of(std::uint32_t code_point) { return range(code_point, code_point); }
  /// Code points with a Unicode property, as in \p{...}: a general category ("L", "Lu", "Letter"), a script
  /// ("Greek", "Script=Greek", "sc=Greek") or a binary property ("Alphabetic"). False when it is unknown.
  static bool unicode_property(std::string_view name, CharSet& out);
  /// \d, \w and \s: ASCII only, or the Unicode sets.
  static CharSet digits(bool unicode);
  static CharSet word(bool unicode);
  static CharSet space(bool unicode);

  void add(std::uint32_t first, std::uint32_t last) {
    ranges_.emplace_back(first, last);
    sorted_ = false;
  }
  void add(const CharSet& other);
  CharSet negated() const;
  CharSet intersected(const CharSet& other) const;
  CharSet minus(const CharSet& other) const { return intersected(other.negated()); }
  /// Adds every simple case variant of the members (Unicode simple folding, or ASCII letters only).
  CharSet case_folded(bool unicode) const;

  bool contains(std::uint32_t code_point) const;
  bool empty() const { return ranges_.empty(); }
  /// Sorted, disjoint and non-adjacent.
  const std::vector<Range>& ranges() const;

 private:
  mutable std::vector<Range> ranges_;
  mutable bool sorted_ = true;
};

/// Appends the UTF-8 form of a code point (not a surrogate, at most kMaxCodePoint).
void append_utf8(std::uint32_t code_point, std::string& out);
/// Reads one code point at `pos` and moves `pos` behind it; false on ill-formed UTF-8 (pos stays).
bool next_utf8(std::string_view text, std::size_t& pos, std::uint32_t& code_point);

}  // namespace deepinfer::grammar
