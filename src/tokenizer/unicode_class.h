// Character classes of the pre-tokenizers: one byte of flags per code point, from Unicode 16.0 general
// categories and the White_Space property. Immutable after first use; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace deepinfer::unicode {

using ClassFlags = std::uint8_t;
inline constexpr ClassFlags kLetter = 1;         // \p{L}
inline constexpr ClassFlags kMark = 2;           // \p{M}
inline constexpr ClassFlags kNumber = 4;         // \p{N}
inline constexpr ClassFlags kPunctuation = 8;    // \p{P}
inline constexpr ClassFlags kSymbol = 16;        // \p{S}
inline constexpr ClassFlags kSpace = 32;         // \s, the White_Space property
inline constexpr ClassFlags kNewline = 64;       // CR and LF; set together with kSpace
inline constexpr ClassFlags kAsciiLetter = 128;  // A-Z a-z; set together with kLetter

/// Two-level table: page numbers of 256 code points each, equal pages stored once (about 90 KB in all).
class ClassTable {
 public:
  /// The one table of the process; built at the first call (a few hundred microseconds).
  static const ClassTable& instance();

  /// Flags of `code_point` <= 0x10FFFF; 0 for code points in none of the classes.
  ClassFlags operator[](char32_t code_point) const {
    return pages_[static_cast<std::size_t>(page_of_[code_point >> 8]) << 8 | (code_point & 0xFF)];
  }

 private:
  ClassTable();
  static constexpr std::size_t kMaxPages = 512;
  std::array<std::uint16_t, 0x1100> page_of_{};
  std::array<ClassFlags, kMaxPages * 256> pages_{};
};

}  // namespace deepinfer::unicode
