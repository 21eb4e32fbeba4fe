#include "tokenizer/unicode_class.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <vector>

#include "base/check.h"

namespace deepinfer::unicode {
namespace {

constexpr std::uint32_t kRanges[] = {
#include "tokenizer/unicode_class_table.inc"
};

constexpr ClassFlags kFlagsOfCode[] = {0, kLetter, kMark, kNumber, kPunctuation, kSymbol};

struct Range {
  char32_t first, last;
};
constexpr Range kWhiteSpace[] = {{0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},
                                 {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                                 {0x205F, 0x205F}, {0x3000, 0x3000}};

}  // namespace

ClassTable::ClassTable() {
  std::vector<ClassFlags> flat(0x110000, 0);
  for (std::size_t i = 0; i + 1 < std::size(kRanges); ++i) {
    const auto first = flat.begin() + (kRanges[i] >> 3);
    const auto last = flat.begin() + (kRanges[i + 1] >> 3);
    std::fill(first, last, kFlagsOfCode[kRanges[i] & 7]);
  }
  for (const Range& r : kWhiteSpace) {
    for (char32_t c = r.first; c <= r.last; ++c) flat[c] |= kSpace;
  }
  for (char32_t c : {U'\r', U'\n'}) flat[c] |= kNewline;
  for (char32_t c = 'A'; c <= 'Z'; ++c) flat[c] |= kAsciiLetter;
  for (char32_t c = 'a'; c <= 'z'; ++c) flat[c] |= kAsciiLetter;

  std::size_t page_count = 0;
  for (std::size_t page = 0; page < page_of_.size(); ++page) {
    const ClassFlags* source = flat.data() + page * 256;
    std::size_t known = 0;
    while (known < page_count && !std::equal(source, source + 256, pages_.data() + known * 256)) ++known;
    if (known == page_count) {
      DI_CHECK(page_count < kMaxPages, "the class table needs more pages");
      std::copy(source, source + 256, pages_.data() + page_count++ * 256);
    }
    page_of_[page] = static_cast<std::uint16_t>(known);
  }
}

const ClassTable& ClassTable::instance() {
  static const std::unique_ptr<const ClassTable> table(new ClassTable());
  return *table;
}

}  // namespace deepinfer::unicode
