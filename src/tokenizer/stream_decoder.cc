#include "tokenizer/stream_decoder.h"

#include "tokenizer/tokenizer.h"

namespace deepinfer {

void StreamDecoder::push_to(TokenId id, std::string& out) {
  if (skip_special_ && tokenizer_->is_special(id)) return;
  stream_.push(tokenizer_->token_bytes(id), out);
}

std::string StreamDecoder::push(TokenId id) {
  std::string out;
  push_to(id, out);
  return out;
}

std::string StreamDecoder::flush() {
  std::string out;
  stream_.flush(out);
  return out;
}

}  // namespace deepinfer
