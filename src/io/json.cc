#include "io/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace deepinfer {

Json::Json(std::uint64_t value) {
  if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    value_ = static_cast<std::int64_t>(value);
  else
    value_ = value;
}
Json::Json(JsonArray value) : value_(std::move(value)) {}
Json::Json(JsonObject value) : value_(std::move(value)) {}

const char* Json::kind_name() const {
  switch (kind()) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return "true or false";
    case Kind::kInt:
    case Kind::kUint:
      return "an integer";
    case Kind::kDouble:
      return "a fractional number";
    case Kind::kString:
      return "a string";
    case Kind::kArray:
      return "an array";
    case Kind::kObject:
      return "an object";
  }
  return "?";
}

namespace {
template <class T, class Variant>
auto& checked_get(Variant& value, const char* wanted, const char* found) {
  auto* held = std::get_if<T>(&value);
  DI_CHECK(held != nullptr, "JSON value read as ", wanted, " but is ", found);
  return *held;
}
}  // namespace

bool Json::as_bool() const {
  return checked_get<bool>(value_, "a bool", kind_name());
}
std::int64_t Json::as_int() const {
  return checked_get<std::int64_t>(value_, "an int64", kind_name());
}
std::uint64_t Json::as_uint() const {
  if (is_int()) {
    DI_CHECK(as_int() >= 0, "JSON value read as unsigned is negative");
    return static_cast<std::uint64_t>(as_int());
  }
  return checked_get<std::uint64_t>(value_, "a uint64", kind_name());
}
double Json::as_double() const {
  if (is_int()) return static_cast<double>(as_int());
  if (kind() == Kind::kUint) return static_cast<double>(as_uint());
  return checked_get<double>(value_, "a number", kind_name());
}
const std::string& Json::as_string() const {
  return checked_get<std::string>(value_, "a string", kind_name());
}
const JsonArray& Json::as_array() const {
  return checked_get<JsonArray>(value_, "an array", kind_name());
}
const JsonObject& Json::as_object() const {
  return checked_get<JsonObject>(value_, "an object", kind_name());
}
JsonArray& Json::as_array() {
  return checked_get<JsonArray>(value_, "an array", kind_name());
}
JsonObject& Json::as_object() {
  return checked_get<JsonObject>(value_, "an object", kind_name());
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const JsonMember& member : as_object()) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

Json& Json::set(std::string_view key, Json value) {
  if (is_null()) value_ = JsonObject{};
  for (JsonMember& member : as_object()) {
    if (member.first == key) {
      member.second = std::move(value);
      return *this;
    }
  }
  as_object().emplace_back(std::string(key), std::move(value));
  return *this;
}

Json& Json::push(Json value) {
  if (is_null()) value_ = JsonArray{};
  as_array().push_back(std::move(value));
  return *this;
}

bool Json::operator==(const Json& other) const {
  if (is_object() && other.is_object()) {  // the order of members carries no meaning
    const JsonObject& a = as_object();
    if (a.size() != other.as_object().size()) return false;
    return std::all_of(a.begin(), a.end(), [&other](const JsonMember& member) {
      const Json* twin = other.find(member.first);
      return twin != nullptr && *twin == member.second;
    });
  }
  if (is_number() && other.is_number() && kind() != other.kind()) return as_double() == other.as_double();
  return value_ == other.value_;
}

std::string json_pointer_token(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

// ---- getters that name the place ----

namespace {

std::string place(const std::string& pointer) {
  return pointer.empty() ? "the top level" : pointer;
}

std::string shown(const Json& value) {
  std::string text = to_json_text(value);
  if (text.size() > 40) return value.kind_name();
  return text;
}

}  // namespace

Error JsonRef::error(std::string message) const {
  return invalid_argument(std::move(message), place(pointer_));
}

Result<JsonRef> JsonRef::get(std::string_view key) const {
  if (!value_->is_object()) return error(fmt::format("expected an object, found {}", value_->kind_name()));
  const Json* member = value_->find(key);
  if (member == nullptr) return error(fmt::format("the field \"{}\" is missing", key));
  return JsonRef(*member, pointer_ + "/" + json_pointer_token(key));
}

std::optional<JsonRef> JsonRef::find(std::string_view key) const {
  const Json* member = value_->find(key);
  if (member == nullptr || member->is_null()) return std::nullopt;
  return JsonRef(*member, pointer_ + "/" + json_pointer_token(key));
}

Result<std::vector<JsonRef>> JsonRef::elements() const {
  if (!value_->is_array()) return error(fmt::format("expected an array, found {}", value_->kind_name()));
  std::vector<JsonRef> out;
  const JsonArray& array = value_->as_array();
  out.reserve(array.size());
  for (std::size_t i = 0; i < array.size(); ++i)
    out.emplace_back(array[i], fmt::format("{}/{}", pointer_, i));
  return out;
}

Result<std::vector<std::pair<std::string_view, JsonRef>>> JsonRef::members() const {
  if (!value_->is_object()) return error(fmt::format("expected an object, found {}", value_->kind_name()));
  std::vector<std::pair<std::string_view, JsonRef>> out;
  out.reserve(value_->as_object().size());
  for (const JsonMember& member : value_->as_object())
    out.emplace_back(member.first, JsonRef(member.second, pointer_ + "/" + json_pointer_token(member.first)));
  return out;
}

Result<std::int64_t> JsonRef::as_int(std::int64_t min, std::int64_t max) const {
  if (!value_->is_int()) return error(fmt::format("expected an integer, found {}", shown(*value_)));
  const std::int64_t x = value_->as_int();
  if (x < min || x > max) return error(fmt::format("{} is outside {}..{}", x, min, max));
  return x;
}

Result<double> JsonRef::as_double(double min, double max) const {
  if (!value_->is_number()) return error(fmt::format("expected a number, found {}", shown(*value_)));
  const double x = value_->as_double();
  if (!(x >= min && x <= max)) return error(fmt::format("{} is outside {}..{}", x, min, max));
  return x;
}

Result<bool> JsonRef::as_bool() const {
  if (!value_->is_bool()) return error(fmt::format("expected true or false, found {}", shown(*value_)));
  return value_->as_bool();
}

Result<std::string> JsonRef::as_string() const {
  if (!value_->is_string()) return error(fmt::format("expected a string, found {}", shown(*value_)));
  return value_->as_string();
}

}  // namespace deepinfer
