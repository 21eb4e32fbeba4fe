// One call from what a request carries to a compiled grammar. (JSON Schema has its own header in schema/.)
//
// Safe from any thread. Errors: kInvalidArgument for malformed input, kUnsupported for what is not regular or
// not there, both with a place; kDeadline past a limit; kCancelled.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "grammar/compiled_grammar.h"
#include "grammar/regex_parser.h"

namespace deepinfer::grammar {

struct CompileOptions {
  GrammarLimits limits;
  const CancelFlag* cancel = nullptr;
};

/// The whole output matches the pattern.
Result<GrammarPtr> compile_regex(std::string_view pattern, const VocabularyPtr& vocabulary,
                                 const RegexOptions& regex = {}, const CompileOptions& options = {});
/// The output is one of the texts. At least one is needed; each must be valid UTF-8.
Result<GrammarPtr> compile_choice(std::span<const std::string> choices, const VocabularyPtr& vocabulary,
                                  const CompileOptions& options = {});
Result<GrammarPtr> compile_gbnf(std::string_view text, const VocabularyPtr& vocabulary,
                                const CompileOptions& options = {});
Result<GrammarPtr> compile_lark(std::string_view text, const VocabularyPtr& vocabulary,
                                const CompileOptions& options = {});

}  // namespace deepinfer::grammar
