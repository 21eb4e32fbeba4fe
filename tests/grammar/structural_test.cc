#include "grammar/structural.h"

#include <gtest/gtest.h>

#include "grammar/gbnf.h"
#include "grammar/matcher.h"
#include "grammar/walk_vocabulary.h"

namespace deepinfer::grammar {
namespace {

using testing::byte_vocabulary;
using testing::whole_match;

SymbolMaker gbnf(std::string text) {
  return [text = std::move(text)](GrammarBuilder& b) { return build_gbnf(b, text, *byte_vocabulary()); };
}

GrammarPtr compiled(const StructuralSpec& spec) {
  auto r = compile_structural(spec, byte_vocabulary());
  EXPECT_TRUE(r.ok()) << (r.ok() ? "" : r.error().to_string());
  return r.ok() ? r.value() : nullptr;
}

StructuralSpec tools() {
  StructuralSpec spec;
  spec.regions = {{"<|call|>add(", gbnf("root ::= [0-9]+ \",\" [0-9]+"), ")<|/call|>"},
                  {"<|call|>say(", gbnf("root ::= [a-z]+"), ")<|/call|>"}};
  spec.triggers = {"<|call|>"};
  return spec;
}

TEST(Structural, FreeTextUntilATriggerThenTheGrammarOfTheRegion) {
  const GrammarPtr g = compiled(tools());
  EXPECT_TRUE(whole_match(g, ""));
  EXPECT_TRUE(whole_match(g, "just text, even <|cal and <| at the end <|call|"));
  EXPECT_TRUE(whole_match(g, "hi <|call|>add(1,2)<|/call|> and <|call|>say(abc)<|/call|>"));
  EXPECT_TRUE(whole_match(g, "<<|call|>say(x)<|/call|>"));
  EXPECT_FALSE(whole_match(g, "hi <|call|>add(1,x)<|/call|>"));
  EXPECT_FALSE(whole_match(g, "hi <|call|>other(1)<|/call|>"));
  EXPECT_FALSE(whole_match(g, "hi <|call|>add(1,2)"));
  EXPECT_TRUE(whole_match(g, std::string("bytes that are \xFF no UTF-8")));
}

TEST(Structural, AtLeastOneRegionCanBeRequired) {
  StructuralSpec spec = tools();
  spec.min_regions = 1;
  spec.max_regions = 2;
  const GrammarPtr g = compiled(spec);
  EXPECT_FALSE(whole_match(g, "text"));
  EXPECT_TRUE(whole_match(g, "t<|call|>say(a)<|/call|>u"));
  EXPECT_FALSE(whole_match(g, "<|call|>say(a)<|/call|><|call|>say(a)<|/call|><|call|>say(a)<|/call|>"));
}

TEST(Structural, RegionsWithoutFreeText) {
  StructuralSpec spec = tools();
  spec.free_text = false;
  spec.min_regions = 1;
  spec.separator = "\n";
  const GrammarPtr g = compiled(spec);
  EXPECT_TRUE(whole_match(g, "<|call|>say(a)<|/call|>\n<|call|>add(1,1)<|/call|>"));
  EXPECT_FALSE(whole_match(g, " <|call|>say(a)<|/call|>"));
  EXPECT_FALSE(whole_match(g, "<|call|>say(a)<|/call|>\n"));
}

TEST(Structural, ATriggerThatIsASpecialTokenIsThatToken) {
  StructuralSpec spec;
  spec.regions = {{"<tool>", gbnf("root ::= [0-9]+"), ";"}};
  const GrammarPtr g = compiled(spec);
  const TokenId tool = byte_vocabulary()->find_special("<tool>");
  Matcher m(g);
  ASSERT_TRUE(m.accept_bytes("the text <tool> is not the token").ok());
  ASSERT_TRUE(m.accept_token(tool).ok());
  EXPECT_FALSE(m.is_accepting());
  EXPECT_FALSE(m.can_accept('x'));
  ASSERT_TRUE(m.accept_bytes("12;").ok());
  EXPECT_TRUE(m.is_accepting());
  ASSERT_TRUE(m.accept_bytes(" more").ok());
  EXPECT_TRUE(m.can_accept(tool));
}

TEST(Structural, TheAnswersGrammarBeginsAfterTheReasoning) {
  for (const bool token : {false, true}) {
    for (const bool optional : {false, true}) {
      GrammarBuilder b;
      const auto start = build_after_reasoning(b, token ? "</think>" : "[/think]", optional,
                                               gbnf("root ::= \"{\" [a-z]* \"}\""), *byte_vocabulary());
      ASSERT_TRUE(start.ok());
      b.set_start(start.value());
      const GrammarPtr g = compile(std::move(b), byte_vocabulary()).value();
      Matcher m(g);
      ASSERT_TRUE(m.accept_bytes("let me see {1}").ok());
      EXPECT_FALSE(m.is_accepting());
      if (token) {
        ASSERT_TRUE(m.accept_token(byte_vocabulary()->find_special("</think>")).ok());
      } else {
        ASSERT_TRUE(m.accept_bytes("[/think]").ok());
      }
      EXPECT_FALSE(m.can_accept('x'));
      ASSERT_TRUE(m.accept_bytes("{abc}").ok());
      EXPECT_TRUE(m.is_accepting());
      EXPECT_TRUE(m.is_complete());
      EXPECT_EQ(whole_match(g, "{abc}"), optional);
      // A draft that runs across the border is cut at the first token that is not allowed.
      if (!token) {
        Matcher d(g);
        std::vector<TokenId> draft;
        for (char c : std::string("ok[/think]{ab9}")) draft.push_back(static_cast<unsigned char>(c));
        EXPECT_EQ(d.accept_prefix(draft), 13u);
      }
    }
  }
}

TEST(Structural, AmbiguousOrEmptyMarkersAreErrors) {
  StructuralSpec spec = tools();
  spec.triggers = {"<|call|>", "<|call"};
  EXPECT_FALSE(compile_structural(spec, byte_vocabulary()).ok());
  spec.triggers = {"other"};
  EXPECT_FALSE(compile_structural(spec, byte_vocabulary()).ok());
  spec.triggers = {""};
  EXPECT_FALSE(compile_structural(spec, byte_vocabulary()).ok());
}

}  // namespace
}  // namespace deepinfer::grammar
