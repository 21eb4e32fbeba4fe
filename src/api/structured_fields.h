// The fields of a request that constrain its answer: response_format, structured_outputs and the older
// guided_*.
#pragma once

#include "api/json_fields.h"
#include "deepinfer/types.h"

namespace deepinfer {

/// Reads every constraint field of `body`; more than one constraint is an error. Only the form is checked
/// here: schemas and grammars are compiled, and refused with a reason, by the engine.
Status read_structured_fields(FieldReader& body, StructuredOutput& constraint);

}  // namespace deepinfer
