#include "grammar/charset.h"

#include <algorithm>

namespace deepinfer::grammar {

const std::vector<CharSet::Range>& CharSet::ranges() const {
  if (!sorted_) {
    std::sort(ranges_.begin(), ranges_.end());
    std::size_t kept = 0;
    for (const Range& r : ranges_) {
      if (kept > 0 && r.first <= ranges_[kept - 1].second + 1) {
        ranges_[kept - 1].second = std::max(ranges_[kept - 1].second, r.second);
      } else {
        ranges_[kept++] = r;
      }
    }
    ranges_.resize(kept);
    sorted_ = true;
  }
  return ranges_;
}

void CharSet::add(const CharSet& other) {
  const std::vector<Range> copy = other.ranges();
  ranges_.insert(ranges_.end(), copy.begin(), copy.end());
  sorted_ = false;
}

CharSet CharSet::negated() const {
  CharSet out;
  std::uint32_t next = 0;
  for (const Range& r : ranges()) {
    if (r.first > next) out.ranges_.emplace_back(next, r.first - 1);
    next = r.second + 1;
  }
  if (next <= kMaxCodePoint) out.ranges_.emplace_back(next, kMaxCodePoint);
  return out;
}

CharSet CharSet::intersected(const CharSet& other) const {
  const std::vector<Range>& a = ranges();
  const std::vector<Range>& b = other.ranges();
  CharSet out;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const std::uint32_t first = std::max(a[i].first, b[j].first);
    const std::uint32_t last = std::min(a[i].second, b[j].second);
    if (first <= last) out.ranges_.emplace_back(first, last);
    if (a[i].second < b[j].second) {
      ++i;
    } else {
      ++j;
    }
  }
  return out;
}

bool CharSet::contains(std::uint32_t code_point) const {
  const std::vector<Range>& r = ranges();
  auto it = std::upper_bound(r.begin(), r.end(), Range{code_point, 0xFFFFFFFFu});
  return it != r.begin() && std::prev(it)->second >= code_point;
}

void append_utf8(std::uint32_t c, std::string& out) {
  const auto put = [&out](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

bool next_utf8(std::string_view text, std::size_t& pos, std::uint32_t& code_point) {
  if (pos >= text.size()) return false;
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = at(pos);
  int extra = 0;
  std::uint32_t value = 0, least = 0;
  if (lead < 0x80) {
    code_point = lead;
    ++pos;
    return true;
  }
  if (lead >= 0xC2 && lead <= 0xDF) {
    extra = 1, value = lead & 0x1Fu, least = 0x80;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    extra = 2, value = lead & 0x0Fu, least = 0x800;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    extra = 3, value = lead & 0x07u, least = 0x10000;
  } else {
    return false;
  }
  if (pos + static_cast<std::size_t>(extra) >= text.size()) return false;
  for (int i = 1; i <= extra; ++i) {
    const std::uint8_t b = at(pos + static_cast<std::size_t>(i));
    if ((b & 0xC0) != 0x80) return false;
    value = (value << 6) | (b & 0x3Fu);
  }
  if (value < least || value > kMaxCodePoint || (value >= 0xD800 && value <= 0xDFFF)) return false;
  code_point = value;
  pos += static_cast<std::size_t>(extra) + 1;
  return true;
}

}  // namespace deepinfer::grammar
