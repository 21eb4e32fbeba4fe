// Any bytes as a JSON Schema: an error with words, or a grammar whose masks agree with what it accepts and
// whose random walks are JSON texts.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/json_schema.h"
#include "grammar/matcher.h"
#include "grammar/schema/json_value.h"

namespace {

using namespace deepinfer;
using namespace deepinfer::grammar;

VocabularyPtr bytes() {
  static const VocabularyPtr made = [] {
    Vocabulary::Options options;
    for (int b = 0; b < 256; ++b) options.tokens.emplace_back(1, static_cast<char>(b));
    options.tokens.emplace_back();
    options.special_tokens = options.eos_tokens = {256};
    return Vocabulary::create(std::move(options)).value();
  }();
  return made;
}

void walk(const GrammarPtr& grammar, std::uint32_t seed) {
  Matcher matcher(grammar);
  std::vector<std::uint32_t> mask(bytes()->mask_words());
  std::string text;
  for (int step = 0; step < 200 && !matcher.is_complete(); ++step) {
    if (const Status status = matcher.compute_mask(mask); !status.ok()) {
      DI_CHECK(status.error().code == ErrorCode::kDeadline, status.error().to_string());
      return;
    }
    std::vector<TokenId> allowed;
    for (TokenId b = 0; b < 256; ++b) {
      if (mask[static_cast<std::size_t>(b) / 32] >> (b % 32) & 1) allowed.push_back(b);
    }
    if (allowed.empty()) break;
    seed = seed * 1664525 + 1013904223;
    const TokenId pick = allowed[(seed >> 8) % allowed.size()];
    DI_CHECK(matcher.accept_token(pick).ok(), "a token of the mask is refused");
    text += static_cast<char>(pick);
  }
  if (matcher.is_accepting()) DI_CHECK(schema::parse_json_value(text).ok(), text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  SchemaOptions options;
  options.best_effort = size % 2 == 1;
  options.order = size % 3 == 0 ? schema::PropertyOrder::kAsWritten : schema::PropertyOrder::kFree;
  GrammarLimits limits;
  limits.max_regex_nodes = 200'000;
  SchemaNotes notes;
  const auto made = compile_json_schema(text, bytes(), options, &notes, limits);
  if (!made.ok()) {
    DI_CHECK(!made.error().message.empty());
    return 0;
  }
  DI_CHECK(options.best_effort || notes.loosened.empty());
  walk(*made, static_cast<std::uint32_t>(size) * 2654435761u + 1);
  return 0;
}
