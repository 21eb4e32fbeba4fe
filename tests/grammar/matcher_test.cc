#include "grammar/matcher.h"

#include <gtest/gtest.h>

#include <ctime>

#include "grammar/front_ends.h"
#include "grammar/walk_vocabulary.h"

namespace deepinfer::grammar {
namespace {

using testing::byte_vocabulary;
using testing::whole_match;

GrammarPtr regex(std::string_view pattern) {
  return compile_regex(pattern, byte_vocabulary()).value();
}
GrammarPtr gbnf(std::string_view text) {
  return compile_gbnf(text, byte_vocabulary()).value();
}

std::vector<std::uint32_t> mask_of(Matcher& m) {
  std::vector<std::uint32_t> mask(byte_vocabulary()->mask_words());
  const Status s = m.compute_mask(mask);
  EXPECT_TRUE(s.ok()) << s.error().to_string();
  return mask;
}
bool bit(const std::vector<std::uint32_t>& mask, TokenId t) {
  return ((mask[static_cast<std::size_t>(t) / 32] >> (t % 32)) & 1) != 0;
}

TEST(Matcher, EveryEndTokenIsAllowedOnlyWhenTheTextIsComplete) {
  const auto ends = byte_vocabulary()->eos_tokens();
  ASSERT_EQ(ends.size(), 2u);
  for (TokenId end : ends) {
    Matcher m(regex("ab?"));
    EXPECT_FALSE(m.is_accepting());
    EXPECT_FALSE(bit(mask_of(m), end));
    EXPECT_FALSE(m.accept_token(end).ok());
    ASSERT_TRUE(m.accept_token('a').ok());
    EXPECT_TRUE(m.is_accepting());
    EXPECT_FALSE(m.is_complete());
    for (TokenId e : ends) EXPECT_TRUE(bit(mask_of(m), e));
    ASSERT_TRUE(m.accept_token(end).ok());
    EXPECT_TRUE(m.finished());
    const auto mask = mask_of(m);
    for (std::size_t t = 0; t < byte_vocabulary()->token_count(); ++t)
      EXPECT_EQ(bit(mask, static_cast<TokenId>(t)), byte_vocabulary()->is_eos(static_cast<TokenId>(t)))
          << "after the end only end tokens remain";
    EXPECT_FALSE(m.accept_token('b').ok());
    EXPECT_FALSE(m.accept_bytes("b").ok());
    m.rollback(1);
    EXPECT_FALSE(m.finished());
    EXPECT_TRUE(m.accept_token('b').ok());
    EXPECT_TRUE(m.is_complete());
  }
}

TEST(Matcher, SpecialTokensNeverMatchText) {
  Matcher m(regex("(?s).*"));
  const auto mask = mask_of(m);
  for (const char* s : {"<think>", "</think>", "<tool>"}) {
    const TokenId t = byte_vocabulary()->find_special(s);
    EXPECT_FALSE(bit(mask, t));
    EXPECT_FALSE(m.can_accept(t));
  }
  EXPECT_TRUE(m.accept_bytes("<think>").ok());
}

TEST(Matcher, LogitsBeyondTheVocabularyAreMasked) {
  Vocabulary::Options o;
  for (int b = 0; b < 256; ++b) o.tokens.emplace_back(1, static_cast<char>(b));
  o.tokens.emplace_back("<end>");
  o.eos_tokens = {256};
  o.logits_width = 300;
  const VocabularyPtr v = Vocabulary::create(o).value();
  Matcher m(compile_regex("(?s).*", v).value());
  std::vector<std::uint32_t> mask(v->mask_words(), ~0u);
  ASSERT_EQ(mask.size(), 10u);
  ASSERT_TRUE(m.compute_mask(mask).ok());
  for (TokenId t = 257; t < 320; ++t) EXPECT_FALSE(bit(mask, t));
  o.logits_width = 100;
  EXPECT_FALSE(Vocabulary::create(o).ok());
  o.logits_width = 300;
  o.eos_tokens = {999};
  EXPECT_FALSE(Vocabulary::create(o).ok());
}

TEST(Matcher, CharactersMaySpanTokens) {
  Matcher m(regex("[\\u4e00-\\u9fff]é"));
  for (const char c : std::string("中é")) {
    const auto t = static_cast<TokenId>(static_cast<unsigned char>(c));
    EXPECT_TRUE(bit(mask_of(m), t));
    EXPECT_FALSE(m.is_accepting());
    ASSERT_TRUE(m.accept_token(t).ok());
  }
  EXPECT_TRUE(m.is_accepting());
  Matcher n(regex("[\\u4e00-\\u9fff]+"));
  EXPECT_FALSE(n.can_accept('a'));
  ASSERT_TRUE(n.accept_token(0xE4).ok());
  EXPECT_FALSE(n.can_accept(0xC3)) << "a character that is begun has to be finished";
}

TEST(Matcher, ForcedBytesStopWhereTheTextBranchesOrMayEnd) {
  EXPECT_EQ(Matcher(regex("abc(d|e)")).forced_bytes(), "abc");
  EXPECT_EQ(Matcher(regex("abc(de)?")).forced_bytes(), "abc");
  EXPECT_EQ(Matcher(regex("abc")).forced_bytes(), "abc");
  EXPECT_EQ(Matcher(regex("x+")).forced_bytes(), "x");
  EXPECT_EQ(Matcher(regex("a{1000}")).forced_bytes(10), "aaaaaaaaaa");
  EXPECT_EQ(Matcher(regex("[ab]c")).forced_bytes(), "");
}

// Longest match from the left, as a stand-in for a tokenizer.
std::vector<TokenId> longest_match(std::string_view text) {
  std::vector<TokenId> out;
  while (!text.empty()) {
    TokenId best = -1;
    std::size_t length = 0;
    for (std::size_t id = 0; id < byte_vocabulary()->token_count(); ++id) {
      const std::string_view t = byte_vocabulary()->text(static_cast<TokenId>(id));
      if (t.size() > length && text.starts_with(t)) best = static_cast<TokenId>(id), length = t.size();
    }
    out.push_back(best);
    text.remove_prefix(length);
  }
  return out;
}

std::string forced_text(std::string_view pattern) {
  Matcher m(regex(pattern));
  std::string text;
  for (TokenId t : m.forced_tokens(longest_match)) {
    text += byte_vocabulary()->text(t);
    EXPECT_TRUE(m.accept_token(t).ok());
  }
  return text;
}

TEST(Matcher, ForcedTokensAreOnlyThoseTheTokenizerWouldChoose) {
  // "the" may go on to nothing longer: all of it is kept.
  EXPECT_EQ(forced_text("the[0-9]"), "the");
  // Behind "x" the token `": "` could begin, but only if the quote were forced and a longer token were
  // allowed.
  EXPECT_EQ(forced_text("x\"(: \"|,)y"), "x") << "`\": \"` or `\",` might be one token with what follows";
  EXPECT_EQ(forced_text("x\"[0-9]"), "x\"");
  EXPECT_EQ(forced_text("1(23|45)"), "") << "\"123\" is one token";
  EXPECT_EQ(forced_text("a[bc]"), "") << "\"ab\" is one token";
}

TEST(Case36, AModelThatWritesBlanksForEverIsNoticed) {
  MatcherOptions options;
  options.max_blank_tokens = 20;
  Matcher m(regex("(?s)\\s*x"), options);
  for (int i = 0; i < 19; ++i) ASSERT_TRUE(m.accept_token(i % 2 ? ' ' : '\n').ok());
  EXPECT_FALSE(m.no_progress());
  ASSERT_TRUE(m.accept_token(' ').ok());
  EXPECT_TRUE(m.no_progress());
  m.rollback(1);
  EXPECT_FALSE(m.no_progress());
  ASSERT_TRUE(m.accept_token('x').ok());
  EXPECT_FALSE(m.no_progress());
}

TEST(Matcher, ADeadEndIsAnErrorAndNotAnEmptyMask) {
  GrammarBuilder b;
  Loop loop;
  loop.bit_count = 2;
  LoopArm arm;
  arm.body = b.literal("a");
  arm.guard.bits_clear = {0};
  arm.update.set_bits = {0};
  loop.arms = {arm};
  loop.exit.bits_set = {1};  // never
  b.set_start(b.sequence({b.literal("x"), b.loop(loop), b.literal("y")}));
  const auto g = compile(std::move(b), byte_vocabulary());
  ASSERT_TRUE(g.ok()) << g.error().to_string();
  Matcher m(g.value());
  ASSERT_TRUE(m.accept_token('x').ok());
  std::vector<std::uint32_t> mask(byte_vocabulary()->mask_words());
  // The arm's end leaves nothing, so the arm itself is not offered.
  const Status s = m.compute_mask(mask);
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().code, ErrorCode::kInternal);
}

TEST(Matcher, AGrammarTooWideForItsFirstRowIsRefusedWhenCompiled) {
  std::string text = "root ::= ";
  for (int i = 0; i < 30'000; ++i) text += (i ? " | \"" : "\"") + std::to_string(i) + "\" root";
  const auto g = compile_gbnf(text + " | \"\"", byte_vocabulary());
  ASSERT_FALSE(g.ok());
  EXPECT_EQ(g.error().code, ErrorCode::kDeadline);
}

TEST(Matcher, LongListsTakeLinearTimeAndBoundedMemory) {
  for (const char* grammar :
       {"root ::= item (\",\" item)*\nitem ::= \"[\" item? \"]\"",         // a loop
        "root ::= item \",\" root | item\nitem ::= \"[\" item? \"]\"",     // right recursion
        "root ::= root \",\" item | item\nitem ::= \"[\" item? \"]\""}) {  // left recursion
    Matcher m(gbnf(grammar));
    const std::clock_t begin = std::clock();
    std::string text;
    for (int i = 0; i < 30'000; ++i) text += i % 3 == 0 ? ",[[]]" : ",[]";
    ASSERT_TRUE(m.accept_bytes(text.substr(1)).ok()) << grammar;
    EXPECT_TRUE(m.is_accepting());
    EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC) << grammar;
    EXPECT_LT(m.memory_bytes(), 100u << 20) << grammar;
    mask_of(m);
  }
}

TEST(Matcher, SweepingOldRowsChangesNothing) {
  const GrammarPtr g =
      gbnf("root ::= item*\nitem ::= \"(\" root \")\" | \"[\" [a-c]{0,40} root \"]\" | \"x\"{2}");
  std::mt19937 rng(3);
  Matcher m(g);
  std::vector<TokenId> tokens;
  for (int i = 0; i < 4000; ++i) {
    std::vector<TokenId> choices;
    const auto mask = mask_of(m);
    for (TokenId t = 0; t < 256; ++t)
      if (bit(mask, t)) choices.push_back(t);
    ASSERT_FALSE(choices.empty());
    tokens.push_back(choices[rng() % choices.size()]);
    ASSERT_TRUE(m.accept_token(tokens.back()).ok());
    if (i % 1000 == 999) m.sweep();
    if (i % 500 == 499) {
      Matcher back = m.fork();
      back.rollback(400);
      back.sweep();
      Matcher fresh = Matcher::replay(g, std::span(tokens).first(tokens.size() - 400)).value();
      ASSERT_EQ(mask_of(back), mask_of(fresh)) << "step " << i;
    }
  }
}

TEST(Matcher, AnAmbiguousGrammarEndsInAnErrorOfTheRequest) {
  GrammarLimits limits;
  limits.max_row_items = 200;
  CompileOptions options;
  options.limits = limits;
  // Every length has its own item: the row grows with the text.
  std::string text = "root ::= ";
  for (int i = 0; i < 60; ++i)
    text += std::string(i ? " | " : "") + "root \"" + std::string(static_cast<std::size_t>(i) + 1, 'a') +
            "\" root";
  text += " | \"a\"";
  const auto g = compile_gbnf(text, byte_vocabulary(), options);
  ASSERT_TRUE(g.ok()) << g.error().to_string();
  Matcher m(g.value());
  const Status s = m.accept_bytes(std::string(400, 'a'));
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().code, ErrorCode::kDeadline) << s.error().to_string();
  EXPECT_EQ(m.step_count(), 0u);
}

}  // namespace
}  // namespace deepinfer::grammar
