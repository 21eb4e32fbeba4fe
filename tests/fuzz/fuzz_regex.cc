// Any bytes as a regex pattern: an error or a grammar whose masks agree with accepting; never a crash, never
// long.
#include "fuzz/grammar_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace deepinfer::grammar;
  if (size == 0 || size > 4096) return 0;
  // The first byte chooses the options.
  RegexOptions regex;
  regex.syntax = (data[0] & 1) != 0 ? RegexSyntax::kEcma : RegexSyntax::kGeneral;
  regex.search = (data[0] & 2) != 0;
  regex.unicode_classes = (data[0] & 4) != 0;
  regex.ignore_case = (data[0] & 8) != 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto g = compile_regex(text, fuzz_vocabulary(), regex, fuzz_limits());
  if (g.ok()) drive(g.value(), text);
  return 0;
}
