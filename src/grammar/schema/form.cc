#include "grammar/schema/form.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace deepinfer::schema {
namespace {

Error too_entangled() {
  return unsupported("combines more than " + std::to_string(kMaxBranches) +
                     " alternatives; split the anyOf/oneOf/not combinations");
}

template <class T>
void append_unique(std::vector<T>& into, const std::vector<T>& from) {
  for (const T& value : from) {
    if (std::find(into.begin(), into.end(), value) == into.end()) into.push_back(value);
  }
}

template <class T>
void append_sorted(std::vector<T>& into, const std::vector<T>& from) {
  into.insert(into.end(), from.begin(), from.end());
  std::sort(into.begin(), into.end());
  into.erase(std::unique(into.begin(), into.end()), into.end());
}

// Raises the lower bound to (bound, open) when that is tighter.
void tighten_low(NumberBranch& b, const Decimal& bound, bool open) {
  const int order = b.low ? compare(*b.low, bound) : -1;
  if (order < 0) {
    b.low = bound;
    b.low_open = open;
  } else if (order == 0) {
    b.low_open = b.low_open || open;
  }
}

void tighten_high(NumberBranch& b, const Decimal& bound, bool open) {
  const int order = b.high ? compare(*b.high, bound) : 1;
  if (order > 0) {
    b.high = bound;
    b.high_open = open;
  } else if (order == 0) {
    b.high_open = b.high_open || open;
  }
}

bool holds(const NumberBranch& b, const Decimal& value) {
  if (b.integral == NumberBranch::Integral::kInteger && !value.is_integer()) return false;
  if (b.integral == NumberBranch::Integral::kFraction && value.is_integer()) return false;
  for (const Decimal& step : b.multiples) {
    if (is_multiple_of(value, step) == false) return false;
  }
  for (const Decimal& step : b.non_multiples) {
    if (is_multiple_of(value, step) == true) return false;
  }
  return std::find(b.excluded.begin(), b.excluded.end(), value) == b.excluded.end();
}

// Where a name's value in `branch` comes from when the branch does not name it: every rule whose keys hold
// it.
Result<NodeId> ruled_value(const ObjectBranch& branch, const std::string& name, FormContext& context) {
  NodeId value = kAnyNode;
  for (const ObjectBranch::Rule& rule : branch.rules) {
    if (!context.contains(rule.keys, name)) continue;
    DI_ASSIGN(value, context.both(value, rule.value));
  }
  return value;
}

// With named members only: an `exists` that one name alone can satisfy makes that name required. False when
// none can.
bool settle_exists(ObjectBranch& b, FormContext& context) {
  std::vector<ObjectBranch::Exists> kept;
  for (ObjectBranch::Exists& e : b.exists) {
    ObjectBranch::Property* only = nullptr;
    int able = 0;
    bool met = false;
    for (ObjectBranch::Property& p : b.properties) {
      if (p.value == kNeverNode || !context.contains(e.keys, p.name)) continue;
      ++able;
      only = &p;
      met = met || (p.required && context.implies(p.value, e.value));
    }
    if (able == 0) return false;
    if (met) continue;
    const auto value = able == 1 ? context.both(only->value, e.value) : Result<NodeId>(kNeverNode);
    if (able > 1 || !value.ok()) {
      kept.push_back(std::move(e));
      continue;
    }
    only->value = *value;
    only->required = true;
    if (*value == kNeverNode || context.surely_empty(*value)) return false;
  }
  b.exists = std::move(kept);
  return true;
}

// Adds a branch unless another covers it, and drops those that it covers.
void add_branch(std::vector<ObjectBranch>& branches, ObjectBranch branch, FormContext& context) {
  for (const ObjectBranch& other : branches) {
    if (covered(branch, other, context)) return;
  }
  std::erase_if(branches, [&](const ObjectBranch& other) { return covered(other, branch, context); });
  branches.push_back(std::move(branch));
}

using NameIndex = std::unordered_map<std::string_view, const ObjectBranch::Property*>;

NameIndex index_names(const ObjectBranch& branch) {
  NameIndex out;
  out.reserve(branch.properties.size());
  for (const auto& property : branch.properties) out.emplace(property.name, &property);
  return out;
}

}  // namespace

ObjectBranch::Property* ObjectBranch::find(std::string_view name) {
  for (Property& p : properties) {
    if (p.name == name) return &p;
  }
  return nullptr;
}

const ObjectBranch::Property* ObjectBranch::find(std::string_view name) const {
  return const_cast<ObjectBranch*>(this)->find(name);
}

Form Form::any() {
  Form out;
  out.null = out.falsity = out.truth = true;
  out.numbers.emplace_back();
  out.strings.emplace_back();
  out.arrays.emplace_back();
  out.objects.emplace_back();
  return out;
}

bool tidy(NumberBranch& b) {
  if (b.integral == NumberBranch::Integral::kFraction) {
    // A multiple of an integer is an integer.
    for (const Decimal& step : b.multiples) {
      if (step.is_integer()) return false;
    }
  }
  if (!b.low || !b.high) return true;
  const int order = compare(*b.low, *b.high);
  if (order > 0) return false;
  if (order == 0) return !b.low_open && !b.high_open && holds(b, *b.low);
  return true;
}

std::optional<NumberBranch> intersect(const NumberBranch& a, const NumberBranch& b) {
  NumberBranch out = a;
  if (a.integral != b.integral) {
    if (a.integral == NumberBranch::Integral::kEither)
      out.integral = b.integral;
    else if (b.integral != NumberBranch::Integral::kEither)
      return std::nullopt;
  }
  out.plain = a.plain || b.plain;
  if (b.low) tighten_low(out, *b.low, b.low_open);
  if (b.high) tighten_high(out, *b.high, b.high_open);
  append_unique(out.multiples, b.multiples);
  append_unique(out.non_multiples, b.non_multiples);
  append_unique(out.excluded, b.excluded);
  if (!tidy(out)) return std::nullopt;
  return out;
}

std::optional<StringBranch> intersect(const StringBranch& a, const StringBranch& b, FormContext& context) {
  if (a.unconstrained()) return b;
  if (b.unconstrained()) return a;
  StringBranch out = a;
  out.min_length = std::max(a.min_length, b.min_length);
  out.max_length = std::min(a.max_length, b.max_length);
  if (out.min_length > out.max_length) return std::nullopt;
  append_sorted(out.languages, b.languages);
  if (!out.one_of) {
    out.one_of = b.one_of;
  } else if (b.one_of) {
    std::erase_if(*out.one_of, [&](const std::string& text) { return !b.one_of->contains(text); });
  }
  out.none_of.insert(b.none_of.begin(), b.none_of.end());
  if (out.one_of) {
    // A finite set answers every other constraint by itself.
    StringBranch rest = out;
    rest.one_of.reset();
    std::set<std::string> kept;
    for (const std::string& text : *out.one_of) {
      if (context.contains(rest, text)) kept.insert(text);
    }
    if (kept.empty()) return std::nullopt;
    StringBranch finite;
    finite.one_of = std::move(kept);
    return finite;
  }
  if (context.surely_empty(out)) return std::nullopt;
  return out;
}

bool tidy(ArrayBranch& b, FormContext& context) {
  // An element that cannot exist ends the array before it.
  for (std::size_t i = 0; i < b.prefix.size(); ++i) {
    if (b.prefix[i] == kNeverNode || context.surely_empty(b.prefix[i])) {
      b.max_items = std::min(b.max_items, static_cast<std::int64_t>(i));
      break;
    }
  }
  if (b.rest == kNeverNode || (b.rest != kAnyNode && context.surely_empty(b.rest))) {
    b.max_items = std::min(b.max_items, static_cast<std::int64_t>(b.prefix.size()));
  }
  if (b.max_items < static_cast<std::int64_t>(b.prefix.size())) {
    b.prefix.resize(static_cast<std::size_t>(b.max_items));
  }
  std::vector<ArrayBranch::Contains> kept;
  for (ArrayBranch::Contains c : b.contains) {
    if (c.min_count == 0 && c.max_count == kNoLimit) continue;
    if (c.min_count > c.max_count) return false;
    if (c.item == kNeverNode || context.surely_empty(c.item)) {
      if (c.min_count > 0) return false;
      continue;
    }
    if (c.min_count > 0) b.min_items = std::max(b.min_items, c.from + c.min_count);
    if (c.item == kAnyNode) {
      if (c.max_count != kNoLimit) b.max_items = std::min(b.max_items, c.from + c.max_count);
      continue;
    }
    kept.push_back(c);
  }
  b.contains = std::move(kept);
  if (b.max_items <= 1) b.unique = false;
  return b.min_items <= b.max_items;
}

Result<std::optional<ArrayBranch>> intersect(const ArrayBranch& a, const ArrayBranch& b,
                                             FormContext& context) {
  ArrayBranch out;
  const auto length = static_cast<std::int64_t>(std::max(a.prefix.size(), b.prefix.size()));
  for (std::int64_t i = 0; i < length; ++i) {
    DI_ASSIGN(const NodeId item, context.both(element_at(a, i), element_at(b, i)));
    out.prefix.push_back(item);
  }
  DI_ASSIGN(out.rest, context.both(a.rest, b.rest));
  out.min_items = std::max(a.min_items, b.min_items);
  out.max_items = std::min(a.max_items, b.max_items);
  out.contains = a.contains;
  append_unique(out.contains, b.contains);
  out.unique = a.unique || b.unique;
  out.evaluated_all = a.evaluated_all || b.evaluated_all;
  out.evaluated_prefix = std::max(a.evaluated_prefix, b.evaluated_prefix);
  out.evaluated_contains = a.evaluated_contains;
  append_unique(out.evaluated_contains, b.evaluated_contains);
  if (!tidy(out, context)) return std::optional<ArrayBranch>();
  return std::optional<ArrayBranch>(std::move(out));
}

bool tidy(ObjectBranch& b, FormContext& context) {
  std::int64_t required = 0, possible = 0;
  for (ObjectBranch::Property& p : b.properties) {
    if (p.required) {
      if (p.value == kNeverNode || context.surely_empty(p.value)) return false;
      ++required;
    }
    if (p.value != kNeverNode) ++possible;
  }
  for (const ObjectBranch::Exists& e : b.exists) {
    if (e.value == kNeverNode || context.surely_empty(e.value)) return false;
  }
  const bool closed = std::any_of(b.rules.begin(), b.rules.end(), [](const ObjectBranch::Rule& r) {
    return r.value == kNeverNode && r.keys.unconstrained();
  });
  if (closed) {
    b.max_properties = std::min(b.max_properties, possible);
    // Only named members remain, so the other rules say nothing.
    b.rules.assign(1, {StringBranch{}, kNeverNode});
  }
  if (closed && !settle_exists(b, context)) return false;
  required =
      std::count_if(b.properties.begin(), b.properties.end(), [](const auto& p) { return p.required; });
  b.min_properties = std::max(b.min_properties, required);
  return b.min_properties <= b.max_properties;
}

bool covered(const ObjectBranch& a, const ObjectBranch& b, FormContext& context) {
  if (a.min_properties < b.min_properties || a.max_properties > b.max_properties) return false;
  if (a.evaluated_all != b.evaluated_all || a.evaluated_keys != b.evaluated_keys) return false;
  for (const ObjectBranch::Property& p : b.properties) {
    const ObjectBranch::Property* mine = a.find(p.name);
    if (mine == nullptr || (p.required && !mine->required) || p.evaluated != mine->evaluated) return false;
    if (!context.implies(mine->value, p.value)) return false;
  }
  for (const ObjectBranch::Rule& rule : b.rules) {
    const bool kept = std::any_of(a.rules.begin(), a.rules.end(), [&](const ObjectBranch::Rule& r) {
      return (r.keys == rule.keys || r.keys.unconstrained()) && context.implies(r.value, rule.value);
    });
    if (!kept) return false;
  }
  for (const ObjectBranch::Property& p : a.properties) {
    if (b.find(p.name) != nullptr) continue;
    if (p.evaluated) return false;
    const auto ruled = ruled_value(b, p.name, context);
    if (!ruled.ok() || !context.implies(p.value, *ruled)) return false;
  }
  return std::all_of(b.exists.begin(), b.exists.end(), [&](const ObjectBranch::Exists& e) {
    return std::any_of(a.exists.begin(), a.exists.end(), [&](const ObjectBranch::Exists& mine) {
      return mine.keys == e.keys && context.implies(mine.value, e.value);
    });
  });
}

Result<std::optional<ObjectBranch>> intersect(const ObjectBranch& a, const ObjectBranch& b,
                                              FormContext& context) {
  ObjectBranch out;
  const NameIndex in_a = index_names(a), in_b = index_names(b);
  for (const ObjectBranch::Property& p : a.properties) {
    ObjectBranch::Property merged = p;
    const auto other = in_b.find(p.name);
    if (other != in_b.end()) {
      DI_ASSIGN(merged.value, context.both(p.value, other->second->value));
      merged.required = p.required || other->second->required;
      merged.evaluated = p.evaluated || other->second->evaluated;
    } else {
      DI_ASSIGN(const NodeId ruled, ruled_value(b, p.name, context));
      DI_ASSIGN(merged.value, context.both(p.value, ruled));
    }
    out.properties.push_back(std::move(merged));
  }
  for (const ObjectBranch::Property& p : b.properties) {
    if (in_a.contains(p.name)) continue;
    ObjectBranch::Property merged = p;
    DI_ASSIGN(const NodeId ruled, ruled_value(a, p.name, context));
    DI_ASSIGN(merged.value, context.both(p.value, ruled));
    out.properties.push_back(std::move(merged));
  }
  out.rules = a.rules;
  for (const ObjectBranch::Rule& rule : b.rules) {
    const auto same = std::find_if(out.rules.begin(), out.rules.end(),
                                   [&](const ObjectBranch::Rule& r) { return r.keys == rule.keys; });
    if (same == out.rules.end()) {
      out.rules.push_back(rule);
    } else {
      DI_ASSIGN(same->value, context.both(same->value, rule.value));
    }
  }
  out.exists = a.exists;
  for (const ObjectBranch::Exists& e : b.exists) {
    const bool known = std::any_of(out.exists.begin(), out.exists.end(), [&](const ObjectBranch::Exists& x) {
      return x.value == e.value && x.keys == e.keys;
    });
    if (!known) out.exists.push_back(e);
  }
  out.min_properties = std::max(a.min_properties, b.min_properties);
  out.max_properties = std::min(a.max_properties, b.max_properties);
  out.evaluated_all = a.evaluated_all || b.evaluated_all;
  out.evaluated_keys = a.evaluated_keys;
  append_sorted(out.evaluated_keys, b.evaluated_keys);
  if (!tidy(out, context)) return std::optional<ObjectBranch>();
  return std::optional<ObjectBranch>(std::move(out));
}

Result<Form> intersect(const Form& a, const Form& b, FormContext& context) {
  Form out;
  out.null = a.null && b.null;
  out.falsity = a.falsity && b.falsity;
  out.truth = a.truth && b.truth;
  if (a.numbers.size() * b.numbers.size() > kMaxBranches * 8 ||
      a.strings.size() * b.strings.size() > kMaxBranches * 8 ||
      a.arrays.size() * b.arrays.size() > kMaxBranches * 2 ||
      a.objects.size() * b.objects.size() > kMaxBranches * 8) {
    return too_entangled();
  }
  for (const auto& x : a.numbers) {
    for (const auto& y : b.numbers) {
      if (auto both = intersect(x, y)) out.numbers.push_back(std::move(*both));
    }
  }
  for (const auto& x : a.strings) {
    for (const auto& y : b.strings) {
      auto both = intersect(x, y, context);
      if (both && std::find(out.strings.begin(), out.strings.end(), *both) == out.strings.end()) {
        out.strings.push_back(std::move(*both));
      }
    }
  }
  for (const auto& x : a.arrays) {
    for (const auto& y : b.arrays) {
      DI_ASSIGN(auto both, intersect(x, y, context));
      if (both) out.arrays.push_back(std::move(*both));
    }
  }
  for (const auto& x : a.objects) {
    for (const auto& y : b.objects) {
      DI_ASSIGN(auto both, intersect(x, y, context));
      if (both) add_branch(out.objects, std::move(*both), context);
    }
    if (out.objects.size() > kMaxBranches) return too_entangled();
  }
  if (out.numbers.size() > kMaxBranches || out.strings.size() > kMaxBranches) return too_entangled();
  return out;
}

Status unite(Form& into, Form from) {
  into.null = into.null || from.null;
  into.falsity = into.falsity || from.falsity;
  into.truth = into.truth || from.truth;
  const auto move_all = [](auto& to, auto& values) {
    std::move(values.begin(), values.end(), std::back_inserter(to));
    return to.size() <= kMaxBranches * 4;
  };
  for (StringBranch& s : from.strings) {
    // Finite sets add up; an equal branch adds nothing.
    const auto finite = std::find_if(into.strings.begin(), into.strings.end(),
                                     [&](const StringBranch& x) { return (x.one_of && s.one_of) || x == s; });
    if (finite == into.strings.end())
      into.strings.push_back(std::move(s));
    else if (finite->one_of && s.one_of)
      finite->one_of->insert(s.one_of->begin(), s.one_of->end());
  }
  const bool fits = move_all(into.numbers, from.numbers) && move_all(into.arrays, from.arrays) &&
                    move_all(into.objects, from.objects);
  if (!fits || into.strings.size() > kMaxBranches) return too_entangled();
  return {};
}

void clear_evaluated(Form& form) {
  for (ArrayBranch& a : form.arrays) {
    a.evaluated_all = false;
    a.evaluated_prefix = 0;
    a.evaluated_contains.clear();
  }
  for (ObjectBranch& o : form.objects) {
    o.evaluated_all = false;
    o.evaluated_keys.clear();
    for (ObjectBranch::Property& p : o.properties) p.evaluated = false;
  }
}

}  // namespace deepinfer::schema
