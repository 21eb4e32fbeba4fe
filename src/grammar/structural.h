// Structural tags: free text in which certain markers begin regions with a grammar of their own, such as tool
// calls, and an answer whose grammar begins after the model's reasoning. Everything is one grammar, so
// drafts, rollback and replay need no special case, and a marker may straddle token borders.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "grammar/compiled_grammar.h"
#include "grammar/front_ends.h"

namespace deepinfer::grammar {

/// Adds some grammar to a builder and returns its symbol. Called once per use.
using SymbolMaker = std::function<Result<Symbol>(GrammarBuilder&)>;

/// A region: `begin`, the content, `end`. Markers that are spelled like a special token of the vocabulary are
/// that token, alone or inside a longer marker ("<tool>name=" with a token "<tool>").
struct TagRegion {
  std::string begin;
  SymbolMaker content;
  std::string end;  // may be empty: the content ends by itself
};

struct StructuralSpec {
  std::vector<TagRegion> regions;
  /// Beginnings of regions that free text must not contain other than to begin a region. Each region's
  /// `begin` has to start with one of them. Empty: the full `begin` texts.
  std::vector<std::string> triggers;
  bool free_text = true;          // text is allowed before, between and after regions
  std::uint32_t min_regions = 0;  // 1 for "at least one tool call"
  std::uint32_t max_regions = kUnbounded;
  /// Between regions when there is no free text.
  std::string separator;
};

/// The grammar of `spec`: errors kInvalidArgument for an empty or ambiguous marker.
Result<Symbol> build_structural(GrammarBuilder& builder, const StructuralSpec& spec,
                                const Vocabulary& vocabulary);

/// Reasoning text up to and including `end_marker` (for instance "</think>"), then `answer`. When `optional`,
/// the answer may also begin at once: for requests where thinking may be off.
Result<Symbol> build_after_reasoning(GrammarBuilder& builder, const std::string& end_marker, bool optional,
                                     const SymbolMaker& answer, const Vocabulary& vocabulary);

Result<GrammarPtr> compile_structural(const StructuralSpec& spec, const VocabularyPtr& vocabulary,
                                      const CompileOptions& options = {});

}  // namespace deepinfer::grammar
