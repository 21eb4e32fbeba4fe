// JSON documents: parsing with limits, a small value type, getters whose errors name the place, and writing.
//
// Json is an owning value. Objects keep the order of the file; a key that appears twice is refused while
// parsing, since readers disagree about which one counts. Text is checked to be UTF-8. Numbers that fit 64
// bits stay integers. Everything here is plain data without global state: const use from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace deepinfer {

class Json;
using JsonArray = std::vector<Json>;
using JsonMember = std::pair<std::string, Json>;
using JsonObject = std::vector<JsonMember>;

class Json {
 public:
  enum class Kind : std::uint8_t { kNull, kBool, kInt, kUint, kDouble, kString, kArray, kObject };

  Json() = default;
  Json(std::nullptr_t) {}                                        // NOLINT: implicit by design
  Json(bool value) : value_(value) {}                            // NOLINT
  Json(int value) : value_(static_cast<std::int64_t>(value)) {}  // NOLINT
  Json(std::int64_t value) : value_(value) {}                    // NOLINT
  /// Values up to INT64_MAX are stored as kInt, so kUint always means "too large for int64".
  Json(std::uint64_t value);                                    // NOLINT
  Json(double value) : value_(value) {}                         // NOLINT
  Json(std::string value) : value_(std::move(value)) {}         // NOLINT
  Json(std::string_view value) : value_(std::string(value)) {}  // NOLINT
  Json(const char* value) : value_(std::string(value)) {}       // NOLINT
  Json(JsonArray value);                                        // NOLINT
  Json(JsonObject value);                                       // NOLINT
  static Json array() { return Json(JsonArray{}); }
  static Json object() { return Json(JsonObject{}); }

  Kind kind() const { return static_cast<Kind>(value_.index()); }
  bool is_null() const { return kind() == Kind::kNull; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_int() const { return kind() == Kind::kInt; }
  bool is_number() const { return kind() == Kind::kInt || kind() == Kind::kUint || kind() == Kind::kDouble; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_array() const { return kind() == Kind::kArray; }
  bool is_object() const { return kind() == Kind::kObject; }
  /// "an object", "a string", ... for messages.
  const char* kind_name() const;

  /// The value of a known kind; a wrong kind is a caller bug (DI_CHECK). as_double takes every number.
  bool as_bool() const;
  std::int64_t as_int() const;
  std::uint64_t as_uint() const;
  double as_double() const;
  const std::string& as_string() const;
  const JsonArray& as_array() const;
  const JsonObject& as_object() const;
  JsonArray& as_array();
  JsonObject& as_object();

  /// The member called `key`, or nullptr (also when this is no object). Linear in the member count.
  const Json* find(std::string_view key) const;
  /// Adds or replaces a member; makes an object of a null.
  Json& set(std::string_view key, Json value);
  /// Adds an element; makes an array of a null.
  Json& push(Json value);

  bool operator==(const Json& other) const;

 private:
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, JsonArray, JsonObject>
      value_;
};

/// Bounds on what is accepted. The parser never recurses, so depth bounds later walks over the value.
struct JsonLimits {
  std::size_t max_bytes = std::size_t{1} << 30;
  std::size_t max_depth = 128;
};

/// Errors: kInvalidArgument "line 3, column 7 (byte 41): ..." for broken or over-limit text; the place of a
/// duplicate key is its JSON pointer.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

/// Compact text (indent < 0) or one member a line. Doubles are written so that they read back to the same
/// value; a NaN or infinity is written as null. Text that is not UTF-8 has its bad bytes replaced by U+FFFD.
std::string to_json_text(const Json& value, int indent = -1);

/// A string as a JSON string with its quotes, same rules.
std::string json_quote(std::string_view text);

/// Escapes "~" and "/" for use in a JSON pointer (RFC 6901).
std::string json_pointer_token(std::string_view key);

/// A value and where it was found. Getters return errors that name the JSON pointer, what was expected and
/// what is there. The document must outlive it. Copies are cheap but for the pointer's text.
class JsonRef {
 public:
  explicit JsonRef(const Json& value, std::string pointer = "")
      : value_(&value), pointer_(std::move(pointer)) {}

  const Json& value() const { return *value_; }
  const std::string& pointer() const { return pointer_; }

  /// The member, or an error when this is no object or has no such member.
  Result<JsonRef> get(std::string_view key) const;
  /// The member, or nothing when it is absent or null.
  std::optional<JsonRef> find(std::string_view key) const;
  /// The elements of an array.
  Result<std::vector<JsonRef>> elements() const;
  /// Key and value of every member of an object, in file order.
  Result<std::vector<std::pair<std::string_view, JsonRef>>> members() const;

  Result<std::int64_t> as_int(std::int64_t min = std::numeric_limits<std::int64_t>::min(),
                              std::int64_t max = std::numeric_limits<std::int64_t>::max()) const;
  /// Any number; must be finite and within [min, max].
  Result<double> as_double(double min = std::numeric_limits<double>::lowest(),
                           double max = std::numeric_limits<double>::max()) const;
  Result<bool> as_bool() const;
  Result<std::string> as_string() const;

  /// An error at this place.
  Error error(std::string message) const;

 private:
  const Json* value_;
  std::string pointer_;
};

}  // namespace deepinfer
