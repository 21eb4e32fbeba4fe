#include "api/json_fields.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string_view> candidates) {
  if (name.size() > 64) return {};
  std::string_view best;
  std::size_t best_distance = std::min<std::size_t>(3, (name.size() + 1) / 2);
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return std::string(best);
}

std::string describe_json(const Json& value) {
  if (value.is_array() || value.is_object()) return value.kind_name();
  if (value.is_string() && value.as_string().size() > 40) return value.kind_name();
  return to_json_text(value);
}

FieldReader::FieldReader(JsonRef object) : object_(std::move(object)) {
  DI_CHECK(object_.value().is_object(), "FieldReader over something that is not an object, at ",
           object_.pointer());
  read_.resize(object_.value().as_object().size());
}

void FieldReader::ignore(std::string_view name) {
  const JsonObject& members = object_.value().as_object();
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].first == name) read_[i] = true;
  }
}

std::optional<JsonRef> FieldReader::find(std::string_view name) {
  ignore(name);
  return object_.find(name);
}

Status FieldReader::boolean(std::string_view name, bool& out) {
  if (const auto value = find(name)) {
    DI_ASSIGN(out, value->as_bool());
  }
  return {};
}

Status FieldReader::string(std::string_view name, std::string& out) {
  if (const auto value = find(name)) {
    DI_ASSIGN(out, value->as_string());
  }
  return {};
}

Status FieldReader::integer(std::string_view name, std::int64_t low, std::int64_t high, std::int64_t& out) {
  if (const auto value = find(name)) {
    DI_ASSIGN(out, value->as_int(low, high));
  }
  return {};
}

Status FieldReader::number(std::string_view name, double low, double high, double& out) {
  if (const auto value = find(name)) {
    DI_ASSIGN(out, value->as_double(low, high));
  }
  return {};
}

std::string FieldReader::pointer(std::string_view name) const {
  return object_.pointer() + "/" + json_pointer_token(name);
}

Error FieldReader::error_at(std::string_view name, std::string message) const {
  return invalid_argument(std::move(message), pointer(name));
}

Error FieldReader::wrong_type(const JsonRef& value, std::string_view expected) {
  return value.error(fmt::format("expected {}, found {}", expected, describe_json(value.value())));
}

std::vector<std::string> FieldReader::unread() const {
  std::vector<std::string> names;
  const JsonObject& members = object_.value().as_object();
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (!read_[i] && !members[i].second.is_null()) names.push_back(members[i].first);
  }
  return names;
}

}  // namespace deepinfer
