// Keywords that look at the value itself: type, enum, const, and the keywords of one type. Values of other
// types pass them, so each keyword only shapes the branch of its own type.
#include <algorithm>
#include <unordered_map>

#include "grammar/schema/normaliser.h"

namespace deepinfer::schema {

Result<Normaliser::Types> Normaliser::read_types(const Place& place) {
  const JsonValue* type = place.get("type");
  if (type == nullptr || !place.validation) return Types{};
  Types out{false, false, false, false, false, false, false};
  bool integer = false;
  const auto add = [&](const JsonValue& name) {
    if (!name.is_string()) return false;
    const std::string& t = name.text;
    if (t == "null")
      out.null = true;
    else if (t == "boolean")
      out.boolean = true;
    else if (t == "number")
      out.number = true;
    else if (t == "integer")
      integer = true;
    else if (t == "string")
      out.string = true;
    else if (t == "array")
      out.array = true;
    else if (t == "object")
      out.object = true;
    else
      return false;
    return true;
  };
  bool known = true;
  if (type->is_array()) {
    for (const JsonValue& name : type->items) known = add(name) && known;
  } else {
    known = add(*type);
  }
  if (!known) return malformed(place, "type", "one of the seven type names or a list of them");
  if (integer && !out.number) out.number = out.integer_only = true;
  return out;
}

Result<std::optional<std::int64_t>> Normaliser::count(const Place& place, std::string_view keyword) {
  const JsonValue* value = place.validation ? place.get(keyword) : nullptr;
  if (value == nullptr) return std::optional<std::int64_t>();
  if (!value->is_number() || !value->number.is_integer() || value->number.negative) {
    return malformed(place, keyword, "a non-negative integer");
  }
  const auto small = to_int64(value->number);
  // No text has 10^18 parts, so a larger bound is the same as none above and the same as this one below.
  return std::optional<std::int64_t>(small ? *small : std::int64_t{1'000'000'000'000'000'000});
}

Result<std::optional<Decimal>> Normaliser::number(const Place& place, std::string_view keyword) {
  const JsonValue* value = place.validation ? place.get(keyword) : nullptr;
  if (value == nullptr) return std::optional<Decimal>();
  if (!value->is_number()) return malformed(place, keyword, "a number");
  return std::optional<Decimal>(value->number);
}

Result<NumberBranch> Normaliser::number_branch(const Place& place) {
  NumberBranch out;
  DI_ASSIGN(out.low, number(place, "minimum"));
  DI_ASSIGN(out.high, number(place, "maximum"));
  const auto exclusive = [&](std::string_view keyword, bool low) -> Status {
    const JsonValue* value = place.validation ? place.get(keyword) : nullptr;
    if (value == nullptr) return {};
    if (value->is_bool()) {  // draft 4: a flag on minimum/maximum
      (low ? out.low_open : out.high_open) = value->boolean;
      return {};
    }
    DI_ASSIGN(const auto bound, number(place, keyword));
    // An impossible range stays as it is; the caller's tidy drops it.
    std::optional<Decimal>& mine = low ? out.low : out.high;
    bool& open = low ? out.low_open : out.high_open;
    const int order = mine ? compare(*mine, *bound) : (low ? -1 : 1);
    if (low ? order <= 0 : order >= 0) {
      mine = bound;
      open = true;
    }
    return {};
  };
  DI_TRY(exclusive("exclusiveMinimum", true));
  DI_TRY(exclusive("exclusiveMaximum", false));
  if (!out.low) out.low_open = false;
  if (!out.high) out.high_open = false;
  DI_ASSIGN(const auto step, number(place, "multipleOf"));
  if (step) {
    if (step->is_zero() || step->negative) return malformed(place, "multipleOf", "a number above zero");
    out.multiples.push_back(*step);
  }
  return out;
}

Result<std::optional<LanguageId>> Normaliser::known_format(const Place& place) {
  const JsonValue* format = place.get("format");
  if (format == nullptr || options_.formats == FormatMode::kAnnotate) return std::optional<LanguageId>();
  if (!format->is_string()) return malformed(place, "format", "a string");
  auto language = strings_.format(format->text);
  if (!language.ok()) return at(place, "format", language.error());
  if (!*language && noted_.insert(format).second) {
    warn(*format, "format", "unknown format '" + format->text + "' is a comment");
  }
  return language;
}

Result<StringBranch> Normaliser::string_branch(const Place& place) {
  StringBranch out;
  DI_ASSIGN(const auto low, count(place, "minLength"));
  DI_ASSIGN(const auto high, count(place, "maxLength"));
  if (low) out.min_length = *low;
  if (high) out.max_length = *high;
  if (const JsonValue* pattern = place.validation ? place.get("pattern") : nullptr) {
    if (!pattern->is_string()) return malformed(place, "pattern", "a string");
    auto language = strings_.pattern(pattern->text);
    if (language.ok())
      out.languages.push_back(*language);
    else
      DI_TRY(loosen(place, "pattern", language.error()));
  }
  DI_ASSIGN(const auto format, known_format(place));
  if (format) out.languages.push_back(*format);
  std::sort(out.languages.begin(), out.languages.end());
  return out;
}

Status Normaliser::read_array_shape(const Place& place, std::vector<const JsonValue*>& prefix,
                                    const JsonValue** rest, const char** rest_keyword) {
  *rest = nullptr;
  *rest_keyword = "items";
  const JsonValue* items = place.get("items");
  const JsonValue* tuple = place.draft >= SchemaDraft::kDraft202012 ? place.get("prefixItems") : nullptr;
  if (items != nullptr && items->is_array()) {  // the tuple form before 2020-12
    tuple = items;
    *rest = place.get("additionalItems");
    *rest_keyword = "additionalItems";
  } else {
    *rest = items;
  }
  if (tuple != nullptr) {
    if (!tuple->is_array()) return malformed(place, "prefixItems", "a list of schemas");
    for (const JsonValue& item : tuple->items) prefix.push_back(&item);
  }
  return {};
}

Result<ArrayBranch> Normaliser::array_branch(const Place& place) {
  ArrayBranch out;
  std::vector<const JsonValue*> prefix;
  const JsonValue* rest = nullptr;
  const char* rest_keyword = nullptr;
  DI_TRY(read_array_shape(place, prefix, &rest, &rest_keyword));
  for (const JsonValue* item : prefix) {
    DI_ASSIGN(const NodeId node, node_of(place, *item));
    out.prefix.push_back(node);
  }
  out.evaluated_prefix = static_cast<std::int64_t>(prefix.size());
  if (rest != nullptr) {
    DI_ASSIGN(out.rest, node_of(place, *rest));
    out.evaluated_all = true;
  }
  DI_ASSIGN(const auto low, count(place, "minItems"));
  DI_ASSIGN(const auto high, count(place, "maxItems"));
  if (low) out.min_items = *low;
  if (high) out.max_items = *high;
  if (const JsonValue* contained = place.get("contains");
      contained != nullptr && place.draft > SchemaDraft::kDraft4) {
    ArrayBranch::Contains c;
    DI_ASSIGN(c.item, node_of(place, *contained));
    if (place.draft >= SchemaDraft::kDraft201909) {
      DI_ASSIGN(const auto least, count(place, "minContains"));
      DI_ASSIGN(const auto most, count(place, "maxContains"));
      if (least) c.min_count = *least;
      if (most) c.max_count = *most;
    }
    out.contains.push_back(c);
    if (place.draft >= SchemaDraft::kDraft202012) out.evaluated_contains.push_back(c.item);
  }
  if (const JsonValue* unique = place.validation ? place.get("uniqueItems") : nullptr) {
    if (!unique->is_bool()) return malformed(place, "uniqueItems", "true or false");
    out.unique = unique->boolean;
  }
  return out;
}

Result<std::vector<std::pair<LanguageId, const JsonValue*>>> Normaliser::pattern_properties(
    const Place& place) {
  std::vector<std::pair<LanguageId, const JsonValue*>> out;
  const JsonValue* patterns = place.get("patternProperties");
  if (patterns == nullptr) return out;
  if (!patterns->is_object()) return malformed(place, "patternProperties", "an object of schemas");
  for (const auto& [pattern, subschema] : patterns->members) {
    auto language = strings_.pattern(pattern);
    if (!language.ok()) return at(place, "patternProperties", language.error());
    out.emplace_back(*language, &subschema);
  }
  return out;
}

Result<ObjectBranch> Normaliser::object_branch(const Place& place) {
  ObjectBranch out;
  std::unordered_map<std::string_view, std::size_t> by_name;
  if (const JsonValue* properties = place.get("properties")) {
    if (!properties->is_object()) return malformed(place, "properties", "an object of schemas");
    for (const auto& [name, subschema] : properties->members) {
      DI_ASSIGN(const NodeId node, node_of(place, subschema));
      by_name.emplace(name, out.properties.size());
      out.properties.push_back({name, node, false, true});
    }
  }
  auto patterns = pattern_properties(place);
  if (!patterns.ok()) {
    // Without the patterns nothing can be said about unnamed keys either.
    DI_TRY(loosen(place, "patternProperties", patterns.error()));
    out.evaluated_all = true;
    return out;
  }
  StringBranch unmatched;
  for (const auto& [language, subschema] : *patterns) {
    DI_ASSIGN(const NodeId node, node_of(place, *subschema));
    StringBranch keys;
    keys.languages.push_back(language);
    for (ObjectBranch::Property& p : out.properties) {
      if (strings_.contains(keys, p.name)) {
        DI_ASSIGN(p.value, both(p.value, node));
      }
    }
    if (node != kAnyNode) out.rules.push_back({keys, node});
    out.evaluated_keys.push_back(language);
    unmatched.languages.push_back(strings_.complement(language));
  }
  std::sort(out.evaluated_keys.begin(), out.evaluated_keys.end());
  std::sort(unmatched.languages.begin(), unmatched.languages.end());
  if (const JsonValue* additional = place.get("additionalProperties")) {
    DI_ASSIGN(const NodeId node, node_of(place, *additional));
    if (node != kAnyNode) out.rules.push_back({unmatched, node});
    out.evaluated_all = true;
  }
  const JsonValue* required = place.validation ? place.get("required") : nullptr;
  // Draft 3 put `required: true` into the property itself; later drafts give that no meaning.
  if (required != nullptr && required->is_bool()) required = nullptr;
  if (required != nullptr) {
    if (!required->is_array()) return malformed(place, "required", "a list of names");
    for (const JsonValue& name : required->items) {
      if (!name.is_string()) return malformed(place, "required", "a list of names");
      const auto [known, fresh] = by_name.try_emplace(name.text, out.properties.size());
      if (!fresh) {
        out.properties[known->second].required = true;
        continue;
      }
      NodeId value = kAnyNode;
      for (const ObjectBranch::Rule& rule : out.rules) {
        if (!strings_.contains(rule.keys, name.text)) continue;
        DI_ASSIGN(value, both(value, rule.value));
      }
      out.properties.push_back({name.text, value, true, false});
    }
  }
  DI_ASSIGN(const auto low, count(place, "minProperties"));
  DI_ASSIGN(const auto high, count(place, "maxProperties"));
  if (low) out.min_properties = *low;
  if (high) out.max_properties = *high;
  if (place.draft > SchemaDraft::kDraft4) DI_TRY(apply_property_names(place, out));
  return out;
}

Status Normaliser::apply_property_names(const Place& place, ObjectBranch& branch) {
  const JsonValue* names = place.get("propertyNames");
  if (names == nullptr) return {};
  auto node = node_of(place, *names);
  if (!node.ok()) return node.error();
  if (*node == kAnyNode) return {};
  auto found = form(*node);
  if (!found.ok()) return found.error();
  const std::vector<StringBranch>& allowed = (*found)->strings;
  const auto holds = [&](const std::string& name) {
    return std::any_of(allowed.begin(), allowed.end(),
                       [&](const StringBranch& keys) { return strings_.contains(keys, name); });
  };
  for (ObjectBranch::Property& p : branch.properties) {
    if (!holds(p.name)) p.value = kNeverNode;
  }
  const bool all =
      std::any_of(allowed.begin(), allowed.end(), [](const StringBranch& s) { return s.unconstrained(); });
  if (all) return {};
  StringBranch forbidden;
  if (!allowed.empty()) forbidden.languages.push_back(strings_.complement(allowed));
  branch.rules.push_back({forbidden, kNeverNode});
  return {};
}

Result<Form> Normaliser::constant_form(const JsonValue& value) {
  Form out;
  switch (value.kind) {
    case JsonValue::Kind::kNull:
      out.null = true;
      break;
    case JsonValue::Kind::kBool:
      (value.boolean ? out.truth : out.falsity) = true;
      break;
    case JsonValue::Kind::kNumber: {
      NumberBranch branch;
      branch.low = branch.high = value.number;
      out.numbers.push_back(std::move(branch));
      break;
    }
    case JsonValue::Kind::kString: {
      StringBranch branch;
      branch.one_of.emplace().insert(value.text);
      out.strings.push_back(std::move(branch));
      break;
    }
    case JsonValue::Kind::kArray: {
      ArrayBranch branch;
      for (const JsonValue& item : value.items) {
        DI_ASSIGN(const NodeId node, constant_node(item));
        branch.prefix.push_back(node);
      }
      branch.rest = kNeverNode;
      branch.min_items = branch.max_items = static_cast<std::int64_t>(value.items.size());
      out.arrays.push_back(std::move(branch));
      break;
    }
    case JsonValue::Kind::kObject: {
      ObjectBranch branch;
      for (const auto& [name, member] : value.members) {
        DI_ASSIGN(const NodeId node, constant_node(member));
        branch.properties.push_back({name, node, true, false});
      }
      branch.rules.push_back({StringBranch{}, kNeverNode});
      branch.min_properties = branch.max_properties = static_cast<std::int64_t>(value.members.size());
      out.objects.push_back(std::move(branch));
      break;
    }
  }
  return out;
}

Result<Form> Normaliser::enum_form(const Place& place, bool negated) {
  const JsonValue* values = place.get("enum");
  if (!values->is_array()) return malformed(place, "enum", "a list of values");
  Form out = negated ? Form::any() : Form::never();
  for (const JsonValue& value : values->items) {
    if (negated) {
      DI_ASSIGN(const Form part, negated_constant(value));
      DI_ASSIGN(out, meet(out, part));
    } else {
      DI_ASSIGN(Form part, constant_form(value));
      DI_TRY(unite(out, std::move(part)));
    }
  }
  return out;
}

Result<Form> Normaliser::assertions(const Place& place) {
  DI_ASSIGN(const Types types, read_types(place));
  Form out;
  out.null = types.null;
  out.truth = out.falsity = types.boolean;
  if (types.number) {
    DI_ASSIGN(NumberBranch branch, number_branch(place));
    if (types.integer_only) branch.integral = NumberBranch::Integral::kInteger;
    branch.plain = types.integer_only && place.draft == SchemaDraft::kDraft4;
    if (tidy(branch)) out.numbers.push_back(std::move(branch));
  }
  if (types.string) {
    DI_ASSIGN(StringBranch branch, string_branch(place));
    if (!strings_.surely_empty(branch)) out.strings.push_back(std::move(branch));
  }
  if (types.array) {
    DI_ASSIGN(ArrayBranch branch, array_branch(place));
    if (tidy(branch, *this)) out.arrays.push_back(std::move(branch));
  }
  if (types.object) {
    DI_ASSIGN(ObjectBranch branch, object_branch(place));
    if (tidy(branch, *this)) out.objects.push_back(std::move(branch));
  }
  if (!place.validation) return out;
  if (place.get("enum") != nullptr) {
    DI_ASSIGN(const Form listed, enum_form(place, false));
    DI_ASSIGN(out, meet(out, listed));
  }
  if (const JsonValue* constant = place.get("const");
      constant != nullptr && place.draft > SchemaDraft::kDraft4) {
    DI_ASSIGN(const Form only, constant_form(*constant));
    DI_ASSIGN(out, meet(out, only));
  }
  return out;
}

}  // namespace deepinfer::schema
