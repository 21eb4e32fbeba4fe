// Encodes records for tests/peers/tokenizer_peer.py.
// usage: tokenizer_dump plain|special|map TOKENIZER.json INPUT OUTPUT
// INPUT: records of uint32 length and bytes. OUTPUT: for each uint32 count and int32 ids. `map` ignores the
// input's text and writes the Engram token map.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "tokenizer/token_map.h"
#include "tokenizer/tokenizer.h"

namespace {

void write(std::ofstream& out, const std::vector<std::int32_t>& ids) {
  const auto count = static_cast<std::uint32_t>(ids.size());
  out.write(reinterpret_cast<const char*>(&count), sizeof count);
  out.write(reinterpret_cast<const char*>(ids.data()),
            static_cast<std::streamsize>(ids.size() * sizeof ids[0]));
}

int fail(const std::string& message) {
  std::fprintf(stderr, "tokenizer_dump: %s\n", message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return fail("usage: tokenizer_dump plain|special|map TOKENIZER.json INPUT OUTPUT");
  const std::string mode = argv[1];
  const auto tokenizer = deepinfer::Tokenizer::load(argv[2]);
  if (!tokenizer.ok()) return fail(tokenizer.error().to_string());
  std::ifstream in(argv[3], std::ios::binary);
  std::ofstream out(argv[4], std::ios::binary);
  std::uint32_t size = 0;
  std::string text;
  while (in.read(reinterpret_cast<char*>(&size), sizeof size)) {
    text.resize(size);
    in.read(text.data(), size);
    if (mode == "map") {
      const auto map = deepinfer::derive_token_map(*tokenizer);
      if (!map.ok()) return fail(map.error().to_string());
      write(out, map->map);
    } else {
      write(out, tokenizer->encode(text, {.parse_special = mode == "special"}));
    }
  }
  return out.flush() ? 0 : fail("cannot write the output");
}
