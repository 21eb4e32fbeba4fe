// Any bytes as a lark grammar: an error or a grammar whose masks agree with accepting; never a crash, never
// long.
#include "fuzz/grammar_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace deepinfer::grammar;
  if (size == 0 || size > 4096) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto g = compile_lark(text, fuzz_vocabulary(), fuzz_limits());
  if (g.ok()) drive(g.value(), text);
  return 0;
}
