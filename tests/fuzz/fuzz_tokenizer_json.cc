// Any bytes as tokenizer.json: one error with words, or a tokenizer that gives every text back.
#include <cstdint>
#include <string>
#include <string_view>

#include "tokenizer/token_map.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = deepinfer::Tokenizer::parse(text);
  if (!tokenizer.ok()) {
    DI_CHECK(!tokenizer.error().message.empty());
    return 0;
  }
  for (const std::string_view sample :
       {std::string_view("he said: hello  <x> 12345 \xE6\xAF\x95\xFF\n\n"), text.substr(0, 200)}) {
    const auto ids = tokenizer->encode(sample);
    DI_CHECK(tokenizer->decode(ids) == sample);
    DI_CHECK(tokenizer->decode(tokenizer->encode(sample, {.parse_special = true})) == sample);
  }
  const auto map = deepinfer::derive_token_map(*tokenizer);
  DI_CHECK(map.ok() && static_cast<std::int64_t>(map->map.size()) == tokenizer->vocab_size());
  return 0;
}
