// A JSON document kept as it was written: object members in order, numbers as exact decimals, strings as
// UTF-8. Owns its whole tree; a parsed tree is never changed, so pointers into it stay valid and any thread
// may read it. Cost: one pass over the text, no recursion on the depth of the input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "grammar/schema/decimal.h"

namespace deepinfer::schema {

struct JsonValue {
  enum class Kind : std::uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  bool boolean = false;
  Decimal number;
  std::string text;              // a string's UTF-8
  std::vector<JsonValue> items;  // an array's elements
  std::vector<std::pair<std::string, JsonValue>>
      members;  // an object's members, in written order, keys unique

  bool is_object() const { return kind == Kind::kObject; }
  bool is_array() const { return kind == Kind::kArray; }
  bool is_string() const { return kind == Kind::kString; }
  bool is_number() const { return kind == Kind::kNumber; }
  bool is_bool() const { return kind == Kind::kBool; }

  /// The member called `key`, or null; null as well for anything but an object.
  const JsonValue* find(std::string_view key) const;
};

/// Equality of JSON Schema: numbers by value (1 equals 1.0), objects whatever the order of their members.
bool json_equal(const JsonValue& a, const JsonValue& b);

/// Limits of parse_json_value; each is an error naming the limit when crossed.
struct TreeLimits {
  std::size_t max_bytes = std::size_t{4} << 20;
  int max_depth = 256;
};

/// Parses one RFC 8259 text. A member written twice keeps its last value, as common parsers do.
Result<JsonValue> parse_json_value(std::string_view text, const TreeLimits& limits = {});

}  // namespace deepinfer::schema
