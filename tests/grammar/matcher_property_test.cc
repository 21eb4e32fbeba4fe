// Properties of the matcher over random grammars: it accepts what the definition says, masks agree with
// accepting, and history operations equal replay.
#include <gtest/gtest.h>

#include "grammar/matcher.h"
#include "grammar/random_grammar.h"

namespace deepinfer::grammar {
namespace {

using testing::random_vocabulary;
using testing::RandomGrammar;
using testing::Reference;

bool bit(const std::vector<std::uint32_t>& mask, std::size_t id) {
  return (mask[id / 32] >> (id % 32)) & 1;
}

TEST(MatcherProperty, AcceptsExactlyWhatTheDefinitionDerives) {
  std::mt19937 vocabulary_rng(1);
  const VocabularyPtr vocabulary = random_vocabulary(vocabulary_rng, 40);
  int matched = 0, refused = 0;
  for (unsigned seed = 1; seed <= 600; ++seed) {
    std::mt19937 rng(seed), again(seed);
    RandomGrammar random(rng);
    RandomGrammar same(again);
    const auto compiled = compile(std::move(*random.builder), vocabulary);
    if (!compiled.ok()) {
      ASSERT_TRUE(compiled.error().message.find("matches nothing") != std::string::npos ||
                  compiled.error().message.find("empty") != std::string::npos)
          << compiled.error().to_string();
      continue;
    }
    for (int round = 0; round < 25; ++round) {
      // Half of the texts are walked through the masks, so that many belong to the language.
      std::string text;
      Matcher walker(compiled.value());
      for (unsigned i = rng() % 8; i > 0; --i) {
        std::string next(1, "abc,\" \\"[rng() % 7]);
        if (round % 2 == 0) {
          for (int tries = 0; tries < 12 && !walker.fork().accept_bytes(next).ok(); ++tries)
            next[0] = "abc,\" \\"[rng() % 7];
          if (!walker.accept_bytes(next).ok()) break;
        }
        text += next;
      }
      Matcher m(compiled.value());
      const bool got = m.accept_bytes(text).ok() && m.is_accepting();
      const bool want = Reference(*same.builder, text).matches();
      ASSERT_EQ(got, want) << "seed " << seed << " text '" << text << "'";
      (want ? matched : refused) += 1;
    }
  }
  EXPECT_GT(matched, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(MatcherProperty, MaskBitEqualsAcceptForEveryTokenOfALargeVocabulary) {
  std::size_t compared = 0, allowed = 0;
  for (unsigned seed = 1; seed <= 30; ++seed) {
    std::mt19937 rng(seed * 7919);
    const VocabularyPtr vocabulary = random_vocabulary(rng, 2000);
    for (int g = 0; g < 5; ++g) {
      RandomGrammar random(rng);
      const auto compiled = compile(std::move(*random.builder), vocabulary);
      if (!compiled.ok()) continue;
      Matcher m(compiled.value());
      std::vector<std::uint32_t> mask(vocabulary->mask_words());
      for (int step = 0; step < 6 && !m.finished(); ++step) {
        const Status s = m.compute_mask(mask);
        std::vector<TokenId> choices;
        for (std::size_t id = 0; id < vocabulary->logits_width(); ++id) {
          const bool can = m.can_accept(static_cast<TokenId>(id));
          if (s.ok()) {
            ASSERT_EQ(bit(mask, id), can)
                << "seed " << seed << " grammar " << g << " step " << step << " token " << id << " '"
                << vocabulary->text(static_cast<TokenId>(id)) << "'";
          }
          if (can) choices.push_back(static_cast<TokenId>(id));
          ++compared;
        }
        // A loop state may leave no way on; then, and only then, the mask is an error.
        ASSERT_EQ(s.ok(), !choices.empty()) << "seed " << seed << (s.ok() ? "" : s.error().to_string());
        if (choices.empty()) break;
        allowed += choices.size();
        ASSERT_TRUE(m.accept_token(choices[rng() % choices.size()]).ok());
      }
    }
  }
  EXPECT_GT(allowed, 10'000u);
  RecordProperty("compared", static_cast<int>(compared));
}

TEST(MatcherProperty, RollbackForkAndReplayAgree) {
  for (unsigned seed = 1; seed <= 120; ++seed) {
    std::mt19937 rng(seed * 104729);
    const VocabularyPtr vocabulary = random_vocabulary(rng, 200);
    RandomGrammar random(rng);
    const auto compiled = compile(std::move(*random.builder), vocabulary);
    if (!compiled.ok()) continue;
    Matcher m(compiled.value());
    std::vector<TokenId> tokens;
    std::vector<std::uint32_t> mask(vocabulary->mask_words()), other(vocabulary->mask_words());
    for (int step = 0; step < 40; ++step) {
      if (rng() % 4 == 0 && !tokens.empty()) {
        const std::size_t count = 1 + rng() % tokens.size();
        m.rollback(count);
        tokens.resize(tokens.size() - count);
      } else if (rng() % 8 == 0) {
        Matcher f = m.fork();
        std::swap(f, m);
      }
      const bool ok = m.compute_mask(mask).ok();
      auto fresh = Matcher::replay(compiled.value(), tokens);
      ASSERT_TRUE(fresh.ok()) << "seed " << seed << ": " << fresh.error().to_string();
      ASSERT_EQ(fresh.value().compute_mask(other).ok(), ok);
      ASSERT_EQ(m.is_accepting(), fresh.value().is_accepting());
      ASSERT_EQ(m.finished(), fresh.value().finished());
      if (ok) {
        ASSERT_EQ(mask, other) << "seed " << seed << " step " << step;
      }
      std::vector<TokenId> choices;
      for (std::size_t id = 0; ok && id < vocabulary->token_count(); ++id)
        if (bit(mask, id)) choices.push_back(static_cast<TokenId>(id));
      if (choices.empty()) continue;
      tokens.push_back(choices[rng() % choices.size()]);
      ASSERT_TRUE(m.accept_token(tokens.back()).ok());
      // A refused token leaves no trace.
      const TokenId bad = static_cast<TokenId>(rng() % vocabulary->token_count());
      if (!m.can_accept(bad)) {
        ASSERT_FALSE(m.accept_token(bad).ok());
      }
      ASSERT_EQ(m.step_count(), tokens.size());
    }
  }
}

}  // namespace
}  // namespace deepinfer::grammar
