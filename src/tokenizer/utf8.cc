#include "tokenizer/utf8.h"

#include <algorithm>
#include <cstring>

namespace deepinfer::utf8 {

Unit next(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i]));
  };
  const std::uint32_t lead = byte(at);
  if (lead < 0x80) return {lead, 1, true, false};

  // Length, and the bounds of the second byte that exclude overlong forms, surrogates and > U+10FFFF.
  std::uint8_t length = 0;
  std::uint32_t low = 0x80, high = 0xBF, code_point = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
    code_point = lead & 0x1F;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    code_point = lead & 0x0F;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    code_point = lead & 0x07;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {0, 1, false, false};
  }
  for (std::uint8_t i = 1; i < length; ++i) {
    if (at + i == text.size()) return {0, i, false, true};
    const std::uint32_t b = byte(at + i);
    if (b < low || b > high) return {0, i, false, false};
    low = 0x80;
    high = 0xBF;
    code_point = code_point << 6 | (b & 0x3F);
  }
  return {code_point, length, true, false};
}

namespace {
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
}

std::size_t valid_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (at + 8 <= text.size()) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data() + at, 8);
      if ((word & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    const Unit unit = next(text, at);
    if (!unit.valid) return at;
    at += unit.length;
  }
  return at;
}

std::string to_valid(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t good = valid_prefix(text);
    out.append(text.substr(0, good));
    text.remove_prefix(good);
    if (text.empty()) break;
    out.append(kReplacement);
    text.remove_prefix(next(text, 0).length);
  }
  return out;
}

void Stream::push(std::string_view bytes, std::string& out) {
  std::string joined;
  if (count_ > 0) {
    joined.assign(bytes_.data(), count_);
    joined += bytes;
    bytes = joined;
    count_ = 0;
  }
  while (!bytes.empty()) {
    const std::size_t good = valid_prefix(bytes);
    out.append(bytes.substr(0, good));
    bytes.remove_prefix(good);
    if (bytes.empty()) return;
    const Unit unit = next(bytes, 0);
    if (unit.truncated) {
      std::copy(bytes.begin(), bytes.end(), bytes_.begin());
      count_ = static_cast<std::uint8_t>(bytes.size());
      return;
    }
    out.append(kReplacement);
    bytes.remove_prefix(unit.length);
  }
}

void Stream::flush(std::string& out) {
  if (count_ > 0) out.append(kReplacement);
  count_ = 0;
}

void append(std::string& out, char32_t code_point) {
  const auto put = [&](std::uint32_t b) { out.push_back(static_cast<char>(b)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

}  // namespace deepinfer::utf8
