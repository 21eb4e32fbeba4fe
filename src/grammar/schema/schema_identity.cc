#include "grammar/schema/schema_identity.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

namespace deepinfer::schema {
namespace {

constexpr std::array<std::string_view, 8> kComments = {"title",    "description", "default",   "examples",
                                                       "$comment", "readOnly",    "writeOnly", "deprecated"};
constexpr std::array<std::string_view, 6> kNames = {
    "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$schema"};

// A member called "title" may also be a property's name; then its value is a schema, which is never a
// comment.
bool is_comment(const std::pair<std::string, JsonValue>& member) {
  if (std::find(kComments.begin(), kComments.end(), member.first) == kComments.end()) return false;
  return !member.second.is_object() || member.first == "default";
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  a = (a ^ b) * 0x9E3779B97F4A7C15ull;
  return a ^ (a >> 29);
}

// Members in the same order only: order shows in the grammar.
bool same(const JsonValue& a, const JsonValue& b) {
  if (a.kind != b.kind) return false;
  if (a.is_array()) {
    return a.items.size() == b.items.size() &&
           std::equal(a.items.begin(), a.items.end(), b.items.begin(), same);
  }
  if (!a.is_object()) return json_equal(a, b);
  auto x = a.members.begin(), y = b.members.begin();
  while (true) {
    while (x != a.members.end() && is_comment(*x)) ++x;
    while (y != b.members.end() && is_comment(*y)) ++y;
    if (x == a.members.end() || y == b.members.end()) return x == a.members.end() && y == b.members.end();
    if (x->first != y->first || !same(x->second, y->second)) return false;
    ++x, ++y;
  }
}

}  // namespace

const SchemaIdentity::Print& SchemaIdentity::print(const JsonValue& value) {
  if (const auto known = prints_.find(&value); known != prints_.end()) return known->second;
  Print out;
  out.hash = static_cast<std::uint64_t>(value.kind) + 17;
  switch (value.kind) {
    case JsonValue::Kind::kBool:
      out.hash = mix(out.hash, value.boolean ? 1 : 2);
      break;
    case JsonValue::Kind::kNumber:
      out.hash = mix(out.hash, std::hash<std::string>()(value.number.to_string()));
      break;
    case JsonValue::Kind::kString:
      out.hash = mix(out.hash, std::hash<std::string>()(value.text));
      break;
    case JsonValue::Kind::kArray:
      for (const JsonValue& item : value.items) {
        const Print inner = print(item);
        out.hash = mix(out.hash, inner.hash);
        out.named = out.named || inner.named;
      }
      break;
    case JsonValue::Kind::kObject:
      for (const auto& member : value.members) {
        if (is_comment(member)) continue;
        const Print inner = print(member.second);
        out.hash = mix(mix(out.hash, std::hash<std::string>()(member.first)), inner.hash);
        out.named =
            out.named || inner.named || std::find(kNames.begin(), kNames.end(), member.first) != kNames.end();
      }
      break;
    case JsonValue::Kind::kNull:
      break;
  }
  return prints_.emplace(&value, out).first->second;
}

SchemaSite SchemaIdentity::representative(const SchemaSite& site) {
  const Print own = print(*site.value);
  if (own.named) return site;
  std::vector<SchemaSite>& candidates = by_hash_[own.hash];
  for (const SchemaSite& other : candidates) {
    if (other.resource == site.resource && same(*other.value, *site.value)) return other;
  }
  candidates.push_back(site);
  return site;
}

}  // namespace deepinfer::schema
