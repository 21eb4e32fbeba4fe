// Short cuts for tests that compile a schema and push texts into it.
#pragma once

#include <string>
#include <string_view>

#include "grammar/byte_vocabulary.h"
#include "grammar/json_schema.h"
#include "grammar/matcher.h"

namespace deepinfer::grammar {

inline Result<GrammarPtr> compile_schema(std::string_view schema, const SchemaOptions& options = {},
                                         SchemaNotes* notes = nullptr) {
  return compile_json_schema(schema, byte_vocabulary(), options, notes);
}

inline bool accepts(const GrammarPtr& grammar, std::string_view text) {
  Matcher matcher(grammar);
  return matcher.accept_bytes(text).ok() && matcher.is_accepting();
}

/// "ok", or the code and the text of the error.
inline std::string outcome(std::string_view schema, const SchemaOptions& options = {}) {
  const auto made = compile_schema(schema, options);
  return made.ok() ? "ok" : std::string(error_code_name(made.error().code)) + " " + made.error().to_string();
}

}  // namespace deepinfer::grammar
