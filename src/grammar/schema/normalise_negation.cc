// What a schema excludes. The complement of a conjunction of keywords is the union of the complements of its
// keywords, and each of those is again a form:
//   required: [a]            the name a does not appear
//   properties: {a: S}       a appears with a value outside of S
//   additionalProperties: S  some unnamed member has a value outside of S (ObjectBranch::Exists)
//   items: S                 some element is outside of S (ArrayBranch::Contains)
//   contains                 too few or too many such elements
//   pattern, format          the complement of the language
#include <algorithm>

#include "grammar/schema/normaliser.h"

namespace deepinfer::schema {

Status Normaliser::negate_types(const Place& place, Form& into) {
  if (!place.validation) return {};
  if (place.get("type") != nullptr) {
    auto read = read_types(place);
    if (!read.ok()) return read.error();
    const Types& types = *read;
    Form out = Form::any();
    out.null = !types.null;
    out.truth = out.falsity = !types.boolean;
    if (types.integer_only)
      out.numbers.front().integral = NumberBranch::Integral::kFraction;
    else if (types.number)
      out.numbers.clear();
    if (types.string) out.strings.clear();
    if (types.array) out.arrays.clear();
    if (types.object) out.objects.clear();
    DI_TRY(unite(into, std::move(out)));
  }
  if (place.get("enum") != nullptr) {
    auto part = enum_form(place, true);
    if (!part.ok()) return part.error();
    DI_TRY(unite(into, std::move(*part)));
  }
  if (const JsonValue* constant = place.get("const");
      constant != nullptr && place.draft > SchemaDraft::kDraft4) {
    auto part = negated_constant(*constant);
    if (!part.ok()) return part.error();
    DI_TRY(unite(into, std::move(*part)));
  }
  return {};
}

Result<Form> Normaliser::negated_constant(const JsonValue& value) {
  Form out = Form::any();
  switch (value.kind) {
    case JsonValue::Kind::kNull:
      out.null = false;
      return out;
    case JsonValue::Kind::kBool:
      (value.boolean ? out.truth : out.falsity) = false;
      return out;
    case JsonValue::Kind::kNumber:
      out.numbers.front().excluded.push_back(value.number);
      return out;
    case JsonValue::Kind::kString:
      out.strings.front().none_of.insert(value.text);
      return out;
    case JsonValue::Kind::kArray: {
      const auto size = static_cast<std::int64_t>(value.items.size());
      out.arrays.clear();
      ArrayBranch shorter, longer;
      shorter.max_items = size - 1;
      longer.min_items = size + 1;
      if (size > 0) out.arrays.push_back(shorter);
      out.arrays.push_back(longer);
      for (std::size_t i = 0; i < value.items.size(); ++i) {
        ArrayBranch other;
        other.prefix.assign(i, kAnyNode);
        DI_ASSIGN(const NodeId node, constant_node(value.items[i], true));
        other.prefix.push_back(node);
        other.min_items = static_cast<std::int64_t>(i) + 1;
        out.arrays.push_back(std::move(other));
      }
      return out;
    }
    case JsonValue::Kind::kObject: {
      out.objects.clear();
      ObjectBranch more;
      ObjectBranch::Exists extra;
      for (const auto& [name, member] : value.members) {
        ObjectBranch missing, other;
        missing.properties.push_back({name, kNeverNode, false, false});
        DI_ASSIGN(const NodeId node, constant_node(member, true));
        other.properties.push_back({name, node, true, false});
        out.objects.push_back(std::move(missing));
        out.objects.push_back(std::move(other));
        extra.keys.none_of.insert(name);
      }
      more.exists.push_back(std::move(extra));
      out.objects.push_back(std::move(more));
      return out;
    }
  }
  return out;
}

Status Normaliser::negate_numbers(const Place& place, Form& into) {
  auto read = number_branch(place);
  if (!read.ok()) return read.error();
  const NumberBranch& range = *read;
  if (range.low) {
    NumberBranch below;
    below.high = range.low;
    below.high_open = !range.low_open;
    DI_TRY(unite(into, only_number(std::move(below))));
  }
  if (range.high) {
    NumberBranch above;
    above.low = range.high;
    above.low_open = !range.high_open;
    DI_TRY(unite(into, only_number(std::move(above))));
  }
  if (!range.multiples.empty()) {
    NumberBranch other;
    other.non_multiples = range.multiples;
    DI_TRY(unite(into, only_number(std::move(other))));
  }
  return {};
}

Status Normaliser::negate_strings(const Place& place, Form& into) {
  auto low = count(place, "minLength");
  if (!low.ok()) return low.error();
  auto high = count(place, "maxLength");
  if (!high.ok()) return high.error();
  if (*low && **low > 0) {
    StringBranch shorter;
    shorter.max_length = **low - 1;
    DI_TRY(unite(into, only_string(std::move(shorter))));
  }
  if (*high) {
    StringBranch longer;
    longer.min_length = **high + 1;
    DI_TRY(unite(into, only_string(std::move(longer))));
  }
  const auto outside = [&](LanguageId language) -> Status {
    StringBranch other;
    other.languages.push_back(strings_.complement(language));
    if (strings_.surely_empty(other)) return {};
    return unite(into, only_string(std::move(other)));
  };
  if (const JsonValue* pattern = place.validation ? place.get("pattern") : nullptr) {
    if (!pattern->is_string()) return malformed(place, "pattern", "a string");
    auto language = strings_.pattern(pattern->text);
    if (!language.ok()) return at(place, "pattern", language.error());
    DI_TRY(outside(*language));
  }
  auto format = known_format(place);
  if (!format.ok()) return format.error();
  if (*format) DI_TRY(outside(**format));
  return {};
}

Status Normaliser::negate_arrays(const Place& place, Form& into) {
  std::vector<const JsonValue*> prefix;
  const JsonValue* rest = nullptr;
  const char* rest_keyword = nullptr;
  DI_TRY(read_array_shape(place, prefix, &rest, &rest_keyword));
  for (std::size_t i = 0; i < prefix.size(); ++i) {
    auto outside = node_of(place, *prefix[i], true);
    if (!outside.ok()) return outside.error();
    if (*outside == kNeverNode) continue;
    ArrayBranch other;
    other.prefix.assign(i, kAnyNode);
    other.prefix.push_back(*outside);
    other.min_items = static_cast<std::int64_t>(i) + 1;
    DI_TRY(unite(into, only_array(std::move(other))));
  }
  if (rest != nullptr) {
    auto outside = node_of(place, *rest, true);
    if (!outside.ok()) return outside.error();
    ArrayBranch other;
    other.contains.push_back({*outside, 1, kNoLimit, static_cast<std::int64_t>(prefix.size())});
    if (tidy(other, *this)) DI_TRY(unite(into, only_array(std::move(other))));
  }
  auto read = array_branch(place);
  if (!read.ok()) return read.error();
  const ArrayBranch& own = *read;
  if (own.min_items > 0) {
    ArrayBranch shorter;
    shorter.max_items = own.min_items - 1;
    DI_TRY(unite(into, only_array(std::move(shorter))));
  }
  if (own.max_items != kNoLimit) {
    ArrayBranch longer;
    longer.min_items = own.max_items + 1;
    DI_TRY(unite(into, only_array(std::move(longer))));
  }
  for (const ArrayBranch::Contains& c : own.contains) {
    if (c.min_count > 0) {
      ArrayBranch fewer;
      fewer.contains.push_back({c.item, 0, c.min_count - 1, 0});
      if (tidy(fewer, *this)) DI_TRY(unite(into, only_array(std::move(fewer))));
    }
    if (c.max_count != kNoLimit) {
      ArrayBranch more;
      more.contains.push_back({c.item, c.max_count + 1, kNoLimit, 0});
      if (tidy(more, *this)) DI_TRY(unite(into, only_array(std::move(more))));
    }
  }
  return {};
}

Status Normaliser::negate_objects(const Place& place, Form& into) {
  const auto add = [&](ObjectBranch branch) -> Status {
    if (!tidy(branch, *this)) return {};
    return unite(into, only_object(std::move(branch)));
  };
  std::set<std::string> names;
  if (const JsonValue* properties = place.get("properties")) {
    if (!properties->is_object()) return malformed(place, "properties", "an object of schemas");
    for (const auto& [name, subschema] : properties->members) {
      names.insert(name);
      auto outside = node_of(place, subschema, true);
      if (!outside.ok()) return outside.error();
      if (*outside == kNeverNode) continue;
      ObjectBranch other;
      other.properties.push_back({name, *outside, true, false});
      DI_TRY(add(std::move(other)));
    }
  }
  auto patterns = pattern_properties(place);
  if (!patterns.ok()) return patterns.error();
  StringBranch unmatched;
  for (const auto& [language, subschema] : *patterns) {
    unmatched.languages.push_back(strings_.complement(language));
    auto outside = node_of(place, *subschema, true);
    if (!outside.ok()) return outside.error();
    ObjectBranch other;
    ObjectBranch::Exists exists;
    exists.keys.languages.push_back(language);
    exists.value = *outside;
    other.exists.push_back(std::move(exists));
    DI_TRY(add(std::move(other)));
  }
  if (const JsonValue* additional = place.get("additionalProperties")) {
    auto outside = node_of(place, *additional, true);
    if (!outside.ok()) return outside.error();
    std::sort(unmatched.languages.begin(), unmatched.languages.end());
    unmatched.none_of = names;
    ObjectBranch other;
    other.exists.push_back({std::move(unmatched), *outside});
    DI_TRY(add(std::move(other)));
  }
  ObjectBranch shape;
  DI_TRY(apply_property_names(place, shape));
  for (const ObjectBranch::Rule& rule : shape.rules) {
    ObjectBranch other;
    other.exists.push_back({rule.keys, kAnyNode});
    DI_TRY(add(std::move(other)));
  }
  const JsonValue* required = place.validation ? place.get("required") : nullptr;
  if (required != nullptr && required->is_array()) {
    for (const JsonValue& name : required->items) {
      ObjectBranch missing;
      missing.properties.push_back({name.text, kNeverNode, false, false});
      DI_TRY(add(std::move(missing)));
    }
  }
  auto low = count(place, "minProperties");
  if (!low.ok()) return low.error();
  auto high = count(place, "maxProperties");
  if (!high.ok()) return high.error();
  if (*low && **low > 0) {
    ObjectBranch fewer;
    fewer.max_properties = **low - 1;
    DI_TRY(add(std::move(fewer)));
  }
  if (*high) {
    ObjectBranch more;
    more.min_properties = **high + 1;
    DI_TRY(add(std::move(more)));
  }
  return {};
}

Status Normaliser::negate_in_place(const Place& place, Form& into) {
  const auto add_node = [&](NodeId node) -> Status {
    auto part = form(node);
    if (!part.ok()) return part.error();
    return unite(into, **part);
  };
  const auto add = [&](Result<Form> part) -> Status {
    if (!part.ok()) return part.error();
    return unite(into, std::move(*part));
  };
  auto all = arms(place, "allOf", true);
  if (!all.ok()) return all.error();
  for (const NodeId node : *all) DI_TRY(add_node(node));
  if (place.get("anyOf") != nullptr) {
    auto outside = arms(place, "anyOf", true);
    if (!outside.ok()) return outside.error();
    NodeId none = kAnyNode;
    for (const NodeId node : *outside) {
      DI_ASSIGN(none, both(none, node));
    }
    DI_TRY(add_node(none));
  }
  if (place.get("oneOf") != nullptr) {
    auto inside = arms(place, "oneOf", false);
    if (!inside.ok()) return inside.error();
    NodeId none = kAnyNode;
    for (std::size_t i = 0; i < inside->size(); ++i) {
      DI_ASSIGN(const NodeId outside, negate((*inside)[i]));
      DI_ASSIGN(none, both(none, outside));
      for (std::size_t j = 0; j < i; ++j) {
        DI_ASSIGN(const NodeId two, both((*inside)[i], (*inside)[j]));
        DI_TRY(add_node(two));
      }
    }
    DI_TRY(add_node(none));
  }
  if (const JsonValue* negation = place.get("not")) DI_TRY(add(subform(place, *negation)));
  const JsonValue* condition = place.draft >= SchemaDraft::kDraft7 ? place.get("if") : nullptr;
  if (condition != nullptr) {
    const auto broken = [&](const JsonValue* consequence, bool when) -> Status {
      if (consequence == nullptr) return {};
      auto side = node_of(place, *condition, !when);
      if (!side.ok()) return side.error();
      auto outside = node_of(place, *consequence, true);
      if (!outside.ok()) return outside.error();
      DI_ASSIGN(const NodeId node, both(*side, *outside));
      return add_node(node);
    };
    DI_TRY(broken(place.get("then"), true));
    DI_TRY(broken(place.get("else"), false));
  }
  auto dependent = read_dependents(place);
  if (!dependent.ok()) return dependent.error();
  for (const Dependent& d : *dependent) {
    for (const std::string& name : d.names) {
      if (name == d.name) continue;
      ObjectBranch broken;
      broken.properties.push_back({d.name, kAnyNode, true, false});
      broken.properties.push_back({name, kNeverNode, false, false});
      DI_TRY(unite(into, only_object(std::move(broken))));
    }
    if (d.schema == nullptr) continue;
    ObjectBranch present;
    present.properties.push_back({d.name, kAnyNode, true, false});
    auto outside = subform(place, *d.schema, true);
    if (!outside.ok()) return outside.error();
    DI_TRY(add(meet(only_object(std::move(present)), *outside)));
  }
  return {};
}

Status Normaliser::negate_unevaluated(const Place& place, Form& into) {
  const JsonValue* properties = place.get("unevaluatedProperties");
  const JsonValue* items = place.get("unevaluatedItems");
  if (place.draft < SchemaDraft::kDraft201909 || (properties == nullptr && items == nullptr)) return {};
  auto seen = evaluated_form(place);
  if (!seen.ok()) return seen.error();
  if (properties != nullptr) {
    auto outside = node_of(place, *properties, true);
    if (!outside.ok()) return outside.error();
    ObjectBranch::Exists left_over;
    left_over.value = *outside;
    bool all = false;
    for (const ObjectBranch& branch : seen->objects) {
      all = all || branch.evaluated_all;
      for (const LanguageId keys : branch.evaluated_keys)
        left_over.keys.languages.push_back(strings_.complement(keys));
      for (const auto& p : branch.properties) {
        if (p.evaluated) left_over.keys.none_of.insert(p.name);
      }
    }
    auto& languages = left_over.keys.languages;
    std::sort(languages.begin(), languages.end());
    languages.erase(std::unique(languages.begin(), languages.end()), languages.end());
    for (ObjectBranch& branch : seen->objects) {
      branch.exists.push_back(left_over);
      if (!all && tidy(branch, *this)) DI_TRY(unite(into, only_object(std::move(branch))));
    }
  }
  if (items != nullptr) {
    auto outside = node_of(place, *items, true);
    if (!outside.ok()) return outside.error();
    ArrayBranch::Contains left_over{*outside, 1, kNoLimit, 0};
    bool all = false;
    for (const ArrayBranch& branch : seen->arrays) {
      all = all || branch.evaluated_all;
      left_over.from = std::max(left_over.from, branch.evaluated_prefix);
      for (const NodeId item : branch.evaluated_contains) {
        DI_ASSIGN(const NodeId other, negate(item));
        DI_ASSIGN(left_over.item, both(left_over.item, other));
      }
    }
    for (ArrayBranch& branch : seen->arrays) {
      branch.contains.push_back(left_over);
      if (!all && tidy(branch, *this)) DI_TRY(unite(into, only_array(std::move(branch))));
    }
  }
  return {};
}

Result<Form> Normaliser::negated_schema(const Place& place) {
  Form out;
  DI_ASSIGN(const std::vector<NodeId> targets, references(place, true));
  for (const NodeId target : targets) {
    DI_ASSIGN(const Form* part, form(target));
    DI_TRY(unite(out, *part));
  }
  if (place.draft > SchemaDraft::kDraft7 || targets.empty()) {
    DI_TRY(negate_types(place, out));
    DI_TRY(negate_numbers(place, out));
    DI_TRY(negate_strings(place, out));
    DI_TRY(negate_arrays(place, out));
    DI_TRY(negate_objects(place, out));
    DI_TRY(negate_in_place(place, out));
    DI_TRY(negate_unevaluated(place, out));
  }
  clear_evaluated(out);
  return out;
}

}  // namespace deepinfer::schema
