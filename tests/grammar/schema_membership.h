// Whether a JSON value is in a normal form, decided on the value itself. An oracle for the normaliser that
// knows nothing of grammars, lexemes or spellings.
#pragma once

#include "grammar/schema/normaliser.h"

namespace deepinfer::schema {

/// kUnsupported errors of lazily normalised parts come through.
Result<bool> is_member(Normaliser& normaliser, NodeId node, const JsonValue& value);

}  // namespace deepinfer::schema
