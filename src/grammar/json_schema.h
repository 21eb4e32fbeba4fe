// JSON Schema (draft 2020-12; drafts 4 to 2019-09 by $schema) as a grammar.
//
// The contract: a keyword is enforced exactly, or the schema is refused with the JSON pointer of the keyword,
// or, when the caller asks for best effort, the constraint is dropped and listed. A grammar never accepts a
// text whose value breaks the schema. It may be narrower in spelling; docs/design/structured-output.md lists
// where.
//
// Every function is a pure function of its arguments and may be called from any thread; a GrammarBuilder
// belongs to one thread. Cost: proportional to the normal form, bounded by SchemaOptions and GrammarLimits.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/compiled_grammar.h"
#include "grammar/ir.h"
#include "grammar/schema/options.h"

namespace deepinfer::grammar {

using schema::SchemaNote;
using schema::SchemaOptions;

/// What the caller of a successful compilation should know.
struct SchemaNotes {
  std::vector<SchemaNote>
      loosened;  // constraints that are not enforced; empty unless best effort was asked for
  std::vector<SchemaNote> warnings;  // unknown formats and keywords
};

/// Adds the JSON texts that satisfy `schema` to a grammar and returns their symbol (not yet the start
/// symbol). Errors: kInvalidArgument for malformed JSON or keywords, and for a schema no value satisfies;
/// kUnsupported for a keyword that cannot be enforced; kNotFound for a reference that leads nowhere;
/// kDeadline past a limit. `where` is the JSON pointer of the keyword as a URI fragment.
Result<Symbol> add_json_schema(GrammarBuilder& builder, std::string_view schema, const SchemaOptions& options,
                               SchemaNotes* notes = nullptr);

/// The same as a grammar of its own, ready for a matcher. `cancel` is looked at between the stages, each of
/// which is bounded.
Result<GrammarPtr> compile_json_schema(std::string_view schema, const VocabularyPtr& vocabulary,
                                       const SchemaOptions& options = {}, SchemaNotes* notes = nullptr,
                                       const GrammarLimits& limits = {}, const CancelFlag* cancel = nullptr);

/// Any JSON object (`json_object` mode), or any JSON value.
enum class JsonText { kObject, kValue };
Result<Symbol> add_json_text(GrammarBuilder& builder, JsonText what, const SchemaOptions& options);
Result<GrammarPtr> compile_json_text(JsonText what, const VocabularyPtr& vocabulary,
                                     const SchemaOptions& options = {});

}  // namespace deepinfer::grammar
