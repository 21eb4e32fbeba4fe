// Lark grammars, the subset that constrained decoding uses: lower-case rules, upper-case terminals,
// "strings"i, /regex/flags, "a".."z", groups, [optional], * + ? ~n ~n..m, priorities and aliases (no effect
// on the language), %ignore, %import common.X, special tokens <name> <[id]>, & and ~ between terminals, %json
// {schema}. Attributes in brackets behind a rule's name: lazy, max_tokens=N, stop="..." or /.../,
// suffix="...", capture (no effect).
//
// A terminal may stand for any of its strings, so the language is that of Lark's Earley parser with its
// complete dynamic lexer. Refused by name: templates, %declare, %extend, %override, imports beyond `common`,
// temperature, look-around.
#pragma once

#include <string_view>

#include "base/result.h"
#include "grammar/ir.h"
#include "grammar/vocabulary.h"

namespace deepinfer::grammar {

/// Adds the grammar; the result is its rule `start`. Errors have "line N" as their place.
Result<Symbol> build_lark(GrammarBuilder& builder, std::string_view text, const Vocabulary& vocabulary);

/// The pattern behind a name of Lark's `common` library, or empty.
std::string_view lark_common_terminal(std::string_view name);

}  // namespace deepinfer::grammar
