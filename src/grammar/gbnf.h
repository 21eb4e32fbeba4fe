// GBNF, the grammar notation of llama.cpp: rules `name ::= ...` over characters, with "literals", [classes],
// `.`, groups, | * + ? {m,n}, comments, and tokens <text>, <[id]>, !<...>. Left recursion is fine here,
// repetition has no upper limit, and rule names may hold letters, digits, - and _.
#pragma once

#include <string_view>

#include "base/result.h"
#include "grammar/ir.h"
#include "grammar/vocabulary.h"

namespace deepinfer::grammar {

/// Adds the grammar to `builder`; the result is its start rule `root`. Errors have "line N" as their place.
/// `vocabulary` resolves tokens.
Result<Symbol> build_gbnf(GrammarBuilder& builder, std::string_view text, const Vocabulary& vocabulary);

}  // namespace deepinfer::grammar
