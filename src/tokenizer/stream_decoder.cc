#include "tokenizer/stream_decoder.h"

#include <algorithm>

#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace deepinfer {
namespace {
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
}

void StreamDecoder::push_bytes(std::string_view bytes, std::string& out) {
  std::string joined;
  if (pending_count_ > 0) {
    joined.assign(pending_.data(), pending_count_);
    joined += bytes;
    bytes = joined;
    pending_count_ = 0;
  }
  while (!bytes.empty()) {
    const std::size_t good = utf8::valid_prefix(bytes);
    out.append(bytes.substr(0, good));
    bytes.remove_prefix(good);
    if (bytes.empty()) return;
    const utf8::Unit unit = utf8::next(bytes, 0);
    if (unit.truncated) {
      std::copy(bytes.begin(), bytes.end(), pending_.begin());
      pending_count_ = static_cast<std::uint8_t>(bytes.size());
      return;
    }
    out.append(kReplacement);
    bytes.remove_prefix(unit.length);
  }
}

void StreamDecoder::push_to(TokenId id, std::string& out) {
  if (skip_special_ && tokenizer_->is_special(id)) return;
  push_bytes(tokenizer_->token_bytes(id), out);
}

std::string StreamDecoder::push(TokenId id) {
  std::string out;
  push_to(id, out);
  return out;
}

std::string StreamDecoder::flush() {
  if (pending_count_ == 0) return {};
  pending_count_ = 0;
  return std::string(kReplacement);
}

}  // namespace deepinfer
