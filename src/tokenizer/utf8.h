// UTF-8 on bytes that may be anything: strict validation (no surrogates, no overlong forms, <= U+10FFFF) and
// the replacement of ill-formed parts. No state; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer::utf8 {

/// What begins at a position of a byte string.
struct Unit {
  char32_t code_point = 0;  ///< valid only when `valid`
  std::uint8_t length = 0;  ///< bytes: of the character, or of the maximal ill-formed part (>= 1)
  bool valid = false;
  bool truncated = false;  ///< not valid, but the text ends here and more bytes could complete the character
};

/// The unit at `text[at]`, at < text.size(). Ill-formed parts are cut as the Unicode standard recommends
/// ("maximal subpart"), so replacing each by U+FFFD equals what other languages' lossy decoders do.
Unit next(std::string_view text, std::size_t at);

/// Length of the longest well-formed prefix.
std::size_t valid_prefix(std::string_view text);

inline bool is_valid(std::string_view text) {
  return valid_prefix(text) == text.size();
}

/// Every ill-formed part replaced by U+FFFD.
std::string to_valid(std::string_view text);

/// Appends the encoding of `code_point` (<= 0x10FFFF, no surrogate).
void append(std::string& out, char32_t code_point);

/// to_valid() for bytes that come in pieces: an unfinished character waits for its rest. Four bytes; copy
/// freely.
class Stream {
 public:
  /// Appends what is certain by now; always whole characters.
  void push(std::string_view bytes, std::string& out);
  /// Ends the text: U+FFFD for an unfinished character.
  void flush(std::string& out);
  /// Bytes held back, 0..3.
  int pending() const { return count_; }

 private:
  std::array<char, 3> bytes_{};
  std::uint8_t count_ = 0;
};

/// The character that begins at `p`, in text known to be well formed; `p` moves behind it.
inline char32_t decode_trusted(const char*& p) {
  const auto byte = [&](int i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(p[i])); };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) {
    p += 1;
    return lead;
  }
  if (lead < 0xE0) {
    const char32_t c = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
    p += 2;
    return c;
  }
  if (lead < 0xF0) {
    const char32_t c = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    p += 3;
    return c;
  }
  const char32_t c = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  p += 4;
  return c;
}

}  // namespace deepinfer::utf8
