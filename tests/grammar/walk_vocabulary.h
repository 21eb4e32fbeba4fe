// A small vocabulary for tests: every byte is a token of its own id, then some longer strings, then control
// tokens.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "grammar/matcher.h"
#include "grammar/vocabulary.h"

namespace deepinfer::grammar::testing {

inline const VocabularyPtr& byte_vocabulary() {
  static const VocabularyPtr vocabulary = [] {
    Vocabulary::Options o;
    for (int b = 0; b < 256; ++b) o.tokens.emplace_back(1, static_cast<char>(b));
    for (const char* s :
         {"\": \"", "\", \"", "\":", "{\"",   "\"}",  "  ",  "\n  ", "the", "ing", " and", "true",
          "false",  "null",   "e\"", "é",     "中文", "123", "0.",   "]}",  "},",  "[[",   "abc",
          "ab",     "bc",     "\\n", "\\u00", "e4 ",  "Nf",  "x=",   "; ",  "int "})
      o.tokens.emplace_back(s);
    for (const char* s : {"<end>", "<stop>", "<think>", "</think>", "<tool>"}) {
      o.special_tokens.push_back(static_cast<TokenId>(o.tokens.size()));
      o.tokens.emplace_back(s);
    }
    o.eos_tokens = {o.special_tokens[0], o.special_tokens[1]};
    return std::move(Vocabulary::create(std::move(o))).value();
  }();
  return vocabulary;
}

inline bool whole_match(const GrammarPtr& g, std::string_view text) {
  Matcher m(g);
  return m.accept_bytes(text).ok() && m.is_accepting();
}

struct Walk {
  std::string text;
  bool finished = false;  // the grammar's end was reached; else the text is a prefix
};

/// A random walk through the masks that ends at a random place where it may, or after `steps` tokens.
inline Walk random_walk(const GrammarPtr& g, unsigned seed, int steps) {
  std::mt19937 rng(seed);
  Matcher m(g);
  const Vocabulary& v = *g->vocabulary();
  std::vector<std::uint32_t> mask(v.mask_words());
  Walk walk;
  for (int step = 0; step < steps; ++step) {
    walk.finished = m.is_accepting();
    if (walk.finished && !walk.text.empty() && (step > steps / 4 || rng() % 8 == 0)) return walk;
    const Status s = m.compute_mask(mask);
    EXPECT_TRUE(s.ok()) << s.error().to_string();
    if (!s.ok()) return walk;
    std::vector<TokenId> choices;
    for (std::size_t id = 0; id < v.token_count(); ++id)
      if (((mask[id / 32] >> (id % 32)) & 1) != 0 && !v.is_special(static_cast<TokenId>(id)))
        choices.push_back(static_cast<TokenId>(id));
    if (choices.empty()) return walk;
    const TokenId t = choices[rng() % choices.size()];
    EXPECT_TRUE(m.accept_token(t).ok());
    walk.text += v.text(t);
  }
  walk.finished = m.is_accepting();
  return walk;
}

}  // namespace deepinfer::grammar::testing
