// A vocabulary with one token a byte and one end token: what a test needs to push text into a matcher.
#pragma once

#include <gtest/gtest.h>

#include "grammar/vocabulary.h"

namespace deepinfer::grammar {

inline constexpr TokenId kByteVocabularyEnd = 256;

inline VocabularyPtr byte_vocabulary() {
  static const VocabularyPtr made = [] {
    Vocabulary::Options options;
    for (int b = 0; b < 256; ++b) options.tokens.emplace_back(1, static_cast<char>(b));
    options.tokens.emplace_back();
    options.special_tokens = options.eos_tokens = {kByteVocabularyEnd};
    auto vocabulary = Vocabulary::create(std::move(options));
    EXPECT_TRUE(vocabulary.ok());
    return *vocabulary;
  }();
  return made;
}

}  // namespace deepinfer::grammar
