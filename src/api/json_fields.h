// Reading the members of one JSON object that came from a user, and knowing afterwards which of them nobody
// read. A member that is null counts as absent, as in the OpenAI API. Errors are those of JsonRef: they name
// the place.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/json.h"

namespace deepinfer {

/// The candidate nearest to `name` when it is a likely misspelling (edit distance <= 2 and < half of it), or
/// "".
std::string nearest_name(std::string_view name, std::span<const std::string_view> candidates);

/// What a value is, for error messages: the value itself when it is short, else its kind.
std::string describe_json(const Json& value);

/// Borrows the object. One thread.
class FieldReader {
 public:
  /// `object` must hold an object.
  explicit FieldReader(JsonRef object);

  /// The member, or nothing when absent or null. Marks it as read.
  std::optional<JsonRef> find(std::string_view name);
  /// Marks a member as read without looking at it.
  void ignore(std::string_view name);

  // Each leaves `out` alone when the member is absent.
  Status boolean(std::string_view name, bool& out);
  Status string(std::string_view name, std::string& out);
  /// An integer in [low, high].
  Status integer(std::string_view name, std::int64_t low, std::int64_t high, std::int64_t& out);
  /// A finite number in [low, high].
  Status number(std::string_view name, double low, double high, double& out);

  /// An error at the member `name`, present or not.
  Error error_at(std::string_view name, std::string message) const;
  /// "expected …, found …" at the value.
  static Error wrong_type(const JsonRef& value, std::string_view expected);
  /// Members that are there, are not null and were not read; in the object's order.
  std::vector<std::string> unread() const;
  std::string pointer(std::string_view name) const;

 private:
  JsonRef object_;
  std::vector<bool> read_;  // one flag a member
};

}  // namespace deepinfer
