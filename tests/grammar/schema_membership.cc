#include "grammar/schema_membership.h"

#include <algorithm>

namespace deepinfer::schema {
namespace {

bool in_numbers(const NumberBranch& b, const Decimal& v) {
  if (b.integral == NumberBranch::Integral::kInteger && !v.is_integer()) return false;
  if (b.integral == NumberBranch::Integral::kFraction && v.is_integer()) return false;
  if (b.low && (compare(v, *b.low) < 0 || (b.low_open && compare(v, *b.low) == 0))) return false;
  if (b.high && (compare(v, *b.high) > 0 || (b.high_open && compare(v, *b.high) == 0))) return false;
  for (const Decimal& m : b.multiples) {
    if (is_multiple_of(v, m) == false) return false;
  }
  for (const Decimal& m : b.non_multiples) {
    if (is_multiple_of(v, m) == true) return false;
  }
  return std::find(b.excluded.begin(), b.excluded.end(), v) == b.excluded.end();
}

Result<bool> in_array(Normaliser& n, const ArrayBranch& b, const JsonValue& v) {
  const auto size = static_cast<std::int64_t>(v.items.size());
  if (size < b.min_items || size > b.max_items) return false;
  for (std::int64_t i = 0; i < size; ++i) {
    DI_ASSIGN(const bool ok, is_member(n, element_at(b, i), v.items[static_cast<std::size_t>(i)]));
    if (!ok) return false;
  }
  for (const ArrayBranch::Contains& c : b.contains) {
    std::int64_t count = 0;
    for (std::int64_t i = c.from; i < size; ++i) {
      DI_ASSIGN(const bool ok, is_member(n, c.item, v.items[static_cast<std::size_t>(i)]));
      count += ok ? 1 : 0;
    }
    if (count < c.min_count || count > c.max_count) return false;
  }
  if (b.unique) {
    for (std::size_t i = 0; i < v.items.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (json_equal(v.items[i], v.items[j])) return false;
      }
    }
  }
  return true;
}

Result<bool> in_object(Normaliser& n, const ObjectBranch& b, const JsonValue& v) {
  const auto size = static_cast<std::int64_t>(v.members.size());
  if (size < b.min_properties || size > b.max_properties) return false;
  for (const ObjectBranch::Property& p : b.properties) {
    if (p.required && v.find(p.name) == nullptr) return false;
  }
  for (const auto& [name, member] : v.members) {
    if (const auto* p = b.find(name)) {
      DI_ASSIGN(const bool ok, is_member(n, p->value, member));
      if (!ok) return false;
      continue;
    }
    for (const ObjectBranch::Rule& rule : b.rules) {
      if (!n.contains(rule.keys, name)) continue;
      DI_ASSIGN(const bool ok, is_member(n, rule.value, member));
      if (!ok) return false;
    }
  }
  for (const ObjectBranch::Exists& e : b.exists) {
    bool found = false;
    for (const auto& [name, member] : v.members) {
      if (found || !n.contains(e.keys, name)) continue;
      DI_ASSIGN(found, is_member(n, e.value, member));
    }
    if (!found) return false;
  }
  return true;
}

}  // namespace

Result<bool> is_member(Normaliser& n, NodeId node, const JsonValue& v) {
  DI_ASSIGN(const Form* form, n.form(node));
  switch (v.kind) {
    case JsonValue::Kind::kNull:
      return form->null;
    case JsonValue::Kind::kBool:
      return v.boolean ? form->truth : form->falsity;
    case JsonValue::Kind::kNumber:
      return std::any_of(form->numbers.begin(), form->numbers.end(),
                         [&](const auto& b) { return in_numbers(b, v.number); });
    case JsonValue::Kind::kString:
      return std::any_of(form->strings.begin(), form->strings.end(),
                         [&](const auto& b) { return n.contains(b, v.text); });
    case JsonValue::Kind::kArray:
      for (const ArrayBranch& b : form->arrays) {
        DI_ASSIGN(const bool ok, in_array(n, b, v));
        if (ok) return true;
      }
      return false;
    case JsonValue::Kind::kObject:
      for (const ObjectBranch& b : form->objects) {
        DI_ASSIGN(const bool ok, in_object(n, b, v));
        if (ok) return true;
      }
      return false;
  }
  return false;
}

}  // namespace deepinfer::schema
