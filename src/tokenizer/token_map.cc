#include "tokenizer/token_map.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <string>
#include <string_view>
#include <unordered_map>

#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace deepinfer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool is_collapsible(char32_t c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

bool is_white_space(char32_t c) {
  return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_WHITE_SPACE);
}

// Lower case one character at a time, without regard to its neighbours (no final sigma).
void append_lower(std::u32string& out, char32_t c) {
  if (c == 0x130) {  // the only character whose context-free lower case is two characters
    out += U"i\u0307";
  } else {
    out += static_cast<char32_t>(u_tolower(static_cast<UChar32>(c)));
  }
}

class KeyMaker {
 public:
  static Result<KeyMaker> create() {
    KeyMaker maker;
    UErrorCode status = U_ZERO_ERROR;
    maker.nfkc_ = icu::Normalizer2::getNFKCInstance(status);
    maker.nfd_ = icu::Normalizer2::getNFDInstance(status);
    if (U_FAILURE(status)) {
      return Error{ErrorCode::kInternal,
                   std::string("ICU normalisation data cannot be loaded: ") + u_errorName(status),
                   {}};
    }
    return maker;
  }

  Result<std::string> normalise(std::string_view text) const {
    UErrorCode status = U_ZERO_ERROR;
    const auto source =
        icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size())));
    const icu::UnicodeString decomposed = nfd_->normalize(nfkc_->normalize(source, status), status);
    if (U_FAILURE(status)) {
      return Error{
          ErrorCode::kInternal, std::string("ICU cannot normalise a token: ") + u_errorName(status), {}};
    }
    std::u32string folded;
    for (std::int32_t i = 0; i < decomposed.length(); i = decomposed.moveIndex32(i, 1)) {
      const UChar32 c = decomposed.char32At(i);
      const bool mark = (U_GET_GC_MASK(c) & U_GC_M_MASK) != 0;
      if (!mark) append_lower(folded, static_cast<char32_t>(c));
    }
    std::u32string spaced;
    for (char32_t c : folded) {
      if (!is_collapsible(c)) {
        spaced += c;
      } else if (spaced.empty() || spaced.back() != ' ') {
        spaced += ' ';
      }
    }
    if (spaced == U" ") return std::string(" ");
    std::size_t first = 0, last = spaced.size();
    while (first < last && is_white_space(spaced[first])) ++first;
    while (last > first && is_white_space(spaced[last - 1])) --last;
    std::string out;
    for (std::size_t i = first; i < last; ++i) {
      // The published rule marks a lone space with U+E000 and turns every U+E000 back into a space at the
      // end.
      utf8::append(out, spaced[i] == 0xE000 ? U' ' : spaced[i]);
    }
    return out;
  }

 private:
  const icu::Normalizer2* nfkc_ = nullptr;
  const icu::Normalizer2* nfd_ = nullptr;
};

}  // namespace

Result<TokenMap> derive_token_map(const Tokenizer& tokenizer) {
  DI_ASSIGN(const KeyMaker maker, KeyMaker::create());
  TokenMap out;
  std::unordered_map<std::string, std::int32_t> ids;
  const std::int64_t count = tokenizer.vocab_size();
  out.map.reserve(static_cast<std::size_t>(count));
  for (std::int64_t id = 0; id < count; ++id) {
    const std::string_view text = tokenizer.token_bytes(static_cast<TokenId>(id));
    std::string key;
    if (!utf8::is_valid(text) || text.find(kReplacement) != std::string_view::npos) {
      key = tokenizer.token_text(static_cast<TokenId>(id));
    } else {
      DI_ASSIGN(key, maker.normalise(text));
      if (key.empty()) key = text;
    }
    const auto [it, fresh] = ids.emplace(std::move(key), static_cast<std::int32_t>(ids.size()));
    out.map.push_back(it->second);
  }
  out.distinct_count = static_cast<std::int64_t>(ids.size());
  return out;
}

}  // namespace deepinfer
