// Which subschemas of a set say the same: equal up to comments (title, description, default, examples, ...),
// in one resource, and without an identifier of their own. Normalising them as one keeps grammars small and
// lets the arms of a oneOf cancel out. Memoises; one per compilation.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "grammar/schema/schema_set.h"

namespace deepinfer::schema {

class SchemaIdentity {
 public:
  /// The first subschema seen that says the same, maybe `site` itself. Linear in the subschema, once.
  SchemaSite representative(const SchemaSite& site);

 private:
  struct Print {
    std::uint64_t hash = 0;
    bool named = false;  // an identifier somewhere inside
  };
  const Print& print(const JsonValue& value);

  std::unordered_map<const JsonValue*, Print> prints_;
  std::unordered_map<std::uint64_t, std::vector<SchemaSite>> by_hash_;
};

}  // namespace deepinfer::schema
