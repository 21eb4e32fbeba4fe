// What a caller of the JSON Schema compiler may choose, and what it hears back besides the grammar.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "grammar/schema/json_value.h"
#include "grammar/schema/schema_set.h"

namespace deepinfer::schema {

/// Where blanks may stand between JSON tokens.
enum class Whitespace {
  kCompact,  // nowhere
  kBounded,  // one blank after ':' and ','; after '[', '{', ',' and before ']', '}' one line end and
             // max_indent blanks
  kAny,      // RFC 8259: any run of blank, tab, line feed, carriage return, between any tokens and around the
             // text
};

/// Order of an object's named members. Keys the schema does not name may stand anywhere under kFree and after
/// the named ones under kAsWritten.
enum class PropertyOrder { kFree, kAsWritten };

/// `format` of a string: enforced where the engine knows the name, or a comment as draft 2020-12 has it by
/// default.
enum class FormatMode { kAssert, kAnnotate };

struct SchemaOptions {
  Whitespace whitespace = Whitespace::kBounded;
  int max_indent = 40;
  PropertyOrder order = PropertyOrder::kFree;
  FormatMode formats = FormatMode::kAssert;
  /// Digits before and after the point of an unconstrained number (0: no limit). A bound keeps a model
  /// from writing digits without end.
  int max_integer_digits = 40, max_fraction_digits = 40;
  /// Drop a constraint that cannot be enforced and list it, instead of refusing the schema.
  bool best_effort = false;
  /// The draft of a schema without $schema.
  SchemaDraft default_draft = SchemaDraft::kDraft202012;
  SchemaDocuments documents;
  TreeLimits json_limits;
  std::size_t max_nodes = 20'000;         // distinct conjunctions of subschemas
  std::size_t max_branch_work = 200'000;  // branch intersections of one compilation
};

/// A constraint that was not enforced (best effort), or a keyword with no meaning here (a warning).
struct SchemaNote {
  std::string pointer;  // "#/properties/a/uniqueItems"
  std::string keyword;
  std::string reason;
};

}  // namespace deepinfer::schema
