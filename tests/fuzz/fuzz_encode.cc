// Any bytes as text: ids decode to the same bytes, in one go and streamed, and control tokens appear only on
// request.
#include <cstdint>
#include <string>
#include <string_view>

#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace deepinfer;
  static const Tokenizer tokenizer = Tokenizer::load("models/demo-v41/tokenizer.json").value();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const bool parse_special : {false, true}) {
    const auto ids = tokenizer.encode(text, {.parse_special = parse_special});
    DI_CHECK(tokenizer.decode(ids) == text);
    DI_CHECK(ids == tokenizer.encode(text, {.parse_special = parse_special}), "the cache changed the result");
    StreamDecoder stream(tokenizer);
    std::string joined;
    for (const TokenId id : ids) {
      DI_CHECK(parse_special || !tokenizer.is_added(id));
      const std::string part = stream.push(id);
      DI_CHECK(utf8::is_valid(part));
      joined += part;
    }
    joined += stream.flush();
    DI_CHECK(joined == utf8::to_valid(text));
  }
  return 0;
}
