// What the grammar fuzzers share: a small vocabulary, and a matcher driven by the input's own bytes while
// masks are held against accepting.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "grammar/front_ends.h"
#include "grammar/matcher.h"

namespace deepinfer::grammar {

inline const VocabularyPtr& fuzz_vocabulary() {
  static const VocabularyPtr vocabulary = [] {
    Vocabulary::Options o;
    for (int b = 0; b < 256; ++b) o.tokens.emplace_back(1, static_cast<char>(b));
    for (const char* s : {"ab", "\": ", "aaa", "0.", "\xC3\xA9", "  ", "<tool>", "<end>"})
      o.tokens.emplace_back(s);
    o.special_tokens = {262};
    o.eos_tokens = {263};
    return std::move(Vocabulary::create(std::move(o))).value();
  }();
  return vocabulary;
}

/// Small limits, so that one input cannot take long.
inline CompileOptions fuzz_limits() {
  CompileOptions options;
  options.limits.max_regex_nodes = 20'000;
  options.limits.max_symbols = 20'000;
  options.limits.max_row_items = 500;
  options.limits.max_threads = 100;
  options.limits.max_trie_nodes_per_mask = 100'000;
  options.limits.max_rows_per_mask = 500;
  return options;
}

/// Up to 8 steps of `text`; at each, the mask has to say what accepting does, unless a limit was met.
inline void drive(const GrammarPtr& grammar, std::string_view text) {
  Matcher m(grammar);
  std::vector<std::uint32_t> mask(fuzz_vocabulary()->mask_words());
  for (std::size_t step = 0; step < 8 && step < text.size(); ++step) {
    const Status s = m.compute_mask(mask);
    if (!s.ok()) return;
    for (TokenId t = 0; t < static_cast<TokenId>(fuzz_vocabulary()->token_count()); ++t) {
      Matcher probe = m.fork();
      const Status a = probe.accept_token(t);
      if (!a.ok() && a.error().code == ErrorCode::kDeadline) return;
      const bool bit = ((mask[static_cast<std::size_t>(t) / 32] >> (t % 32)) & 1) != 0;
      DI_CHECK(bit == a.ok(), "mask and accept disagree about token ", t, " at step ", step);
    }
    if (!m.accept_token(static_cast<unsigned char>(text[step])).ok()) {
      // Go on with the first allowed token instead.
      TokenId t = 0;
      while (t < 263 && ((mask[static_cast<std::size_t>(t) / 32] >> (t % 32)) & 1) == 0) ++t;
      if (!m.accept_token(t).ok()) return;
    }
  }
}

}  // namespace deepinfer::grammar
