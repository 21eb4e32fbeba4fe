// Keywords that apply further schemas to the same value: references, allOf, anyOf, oneOf, not, if,
// dependents; and the unevaluated keywords, which look at what all of them evaluated.
#include <algorithm>

#include "grammar/schema/normaliser.h"

namespace deepinfer::schema {
namespace {

// Arms of an anyOf whose combinations are enumerated when unevaluated keywords make them differ.
constexpr std::size_t kMaxTrackedArms = 6;

bool evaluates_anything(const Form& form) {
  const bool arrays = std::any_of(form.arrays.begin(), form.arrays.end(), [](const ArrayBranch& a) {
    return a.evaluated_all || a.evaluated_prefix > 0 || !a.evaluated_contains.empty();
  });
  return arrays || std::any_of(form.objects.begin(), form.objects.end(), [](const ObjectBranch& o) {
           return o.evaluated_all || !o.evaluated_keys.empty() ||
                  std::any_of(o.properties.begin(), o.properties.end(),
                              [](const auto& p) { return p.evaluated; });
         });
}

}  // namespace

Result<std::vector<NodeId>> Normaliser::references(const Place& place, bool negated) {
  std::vector<NodeId> out;
  const auto follow = [&](std::string_view keyword, bool dynamic) -> Status {
    const JsonValue* ref = place.get(keyword);
    if (ref == nullptr) return {};
    if (!ref->is_string()) return malformed(place, keyword, "a URI reference");
    auto site = set_.resolve(place.site, ref->text);
    if (!site.ok()) return at(place, keyword, site.error());
    SchemaSite target = *site;
    std::string anchor;
    bool rebind =
        dynamic && keyword == "$dynamicRef" && set_.is_dynamic_target(place.site, ref->text, &anchor);
    if (keyword == "$recursiveRef") rebind = set_.resource(target.resource).dynamic_anchors.contains("");
    if (rebind) {
      const Scope& scope = scopes_[static_cast<std::size_t>(place.scope)];
      if (const auto outer = scope.find(anchor); outer != scope.end()) target = outer->second;
    }
    DI_ASSIGN(const NodeId node, node_of(target, place.scope, negated));
    out.push_back(node);
    return {};
  };
  DI_TRY(follow("$ref", false));
  if (place.draft >= SchemaDraft::kDraft202012) DI_TRY(follow("$dynamicRef", true));
  if (place.draft == SchemaDraft::kDraft201909) DI_TRY(follow("$recursiveRef", true));
  return out;
}

Result<std::vector<NodeId>> Normaliser::arms(const Place& place, std::string_view keyword, bool negated) {
  std::vector<NodeId> out;
  const JsonValue* list = place.get(keyword);
  if (list == nullptr) return out;
  if (!list->is_array() || list->items.empty())
    return malformed(place, keyword, "a list of at least one schema");
  for (const JsonValue& arm : list->items) {
    DI_ASSIGN(const NodeId node, node_of(place, arm, negated));
    out.push_back(node);
  }
  return out;
}

Result<Form> Normaliser::any_of(std::vector<Form> forms) {
  Form out;
  const bool differ = track_evaluated_ && std::any_of(forms.begin(), forms.end(), evaluates_anything);
  if (!differ) {
    for (Form& form : forms) DI_TRY(unite(out, std::move(form)));
    return out;
  }
  // Every arm that holds adds to what is evaluated, and evaluating more only allows more. So the union over
  // all sets of arms that hold together is exact although "and no other arm holds" is never asked.
  if (forms.size() > kMaxTrackedArms) {
    return unsupported("anyOf with more than " + std::to_string(kMaxTrackedArms) +
                       " arms beside unevaluated keywords");
  }
  for (std::size_t chosen = 1; chosen < (std::size_t{1} << forms.size()); ++chosen) {
    Form all = Form::any();
    for (std::size_t i = 0; i < forms.size(); ++i) {
      if ((chosen >> i & 1) == 0) continue;
      DI_ASSIGN(all, meet(all, forms[i]));
    }
    DI_TRY(unite(out, std::move(all)));
  }
  return out;
}

Result<Form> Normaliser::one_of(const Place& place) {
  DI_ASSIGN(const std::vector<NodeId> nodes, arms(place, "oneOf", false));
  Form out;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    NodeId alone = nodes[i];
    if (alone == kNeverNode) continue;
    bool dead = false;
    for (std::size_t j = 0; j < nodes.size() && !dead; ++j) {
      if (i == j) continue;
      DI_ASSIGN(const NodeId overlap, both(nodes[i], nodes[j]));
      if (overlap == kNeverNode) continue;
      DI_ASSIGN(const Form* common, form(overlap));
      if (common->is_never()) continue;
      DI_ASSIGN(const NodeId other, negate(nodes[j]));
      DI_ASSIGN(alone, both(alone, other));
      dead = alone == kNeverNode;
    }
    if (dead) continue;
    DI_ASSIGN(const Form* part, form(alone));
    DI_TRY(unite(out, *part));
  }
  return out;
}

Result<Form> Normaliser::if_then_else(const Place& place) {
  const JsonValue* condition = place.get("if");
  const JsonValue* then = place.get("then");
  const JsonValue* otherwise = place.get("else");
  if (condition == nullptr || (then == nullptr && otherwise == nullptr && !track_evaluated_))
    return Form::any();
  DI_ASSIGN(Form holds, subform(place, *condition));
  if (then != nullptr) {
    DI_ASSIGN(const Form consequence, subform(place, *then));
    DI_ASSIGN(holds, meet(holds, consequence));
  }
  DI_ASSIGN(Form fails, subform(place, *condition, true));
  if (otherwise != nullptr) {
    DI_ASSIGN(const Form alternative, subform(place, *otherwise));
    DI_ASSIGN(fails, meet(fails, alternative));
  }
  DI_TRY(unite(holds, std::move(fails)));
  return holds;
}

Result<std::vector<Normaliser::Dependent>> Normaliser::read_dependents(const Place& place) {
  std::vector<Dependent> out;
  const auto read = [&](const char* keyword, bool lists, bool schemas) -> Status {
    const JsonValue* map = place.get(keyword);
    if (map == nullptr) return {};
    if (!map->is_object()) return malformed(place, keyword, "an object");
    for (const auto& [name, value] : map->members) {
      Dependent d;
      d.name = name;
      d.keyword = keyword;
      if (value.is_array() && lists) {
        for (const JsonValue& other : value.items) {
          if (!other.is_string()) return malformed(place, keyword, "lists of names");
          d.names.push_back(other.text);
        }
        if (d.names.empty()) continue;
      } else if (value.is_string() && lists && schemas) {
        d.names.push_back(value.text);  // a single name, as older drafts allowed
      } else if (schemas && (value.is_object() || value.is_bool())) {
        d.schema = &value;
      } else {
        return malformed(place, keyword,
                         lists && schemas ? "lists of names or schemas"
                         : lists          ? "lists of names"
                                          : "schemas");
      }
      out.push_back(std::move(d));
    }
    return {};
  };
  if (place.validation) DI_TRY(read("dependentRequired", true, false));
  DI_TRY(read("dependentSchemas", false, true));
  // Dropped from the specification after draft 7, still common in schemas without $schema.
  DI_TRY(read("dependencies", true, true));
  return out;
}

Result<Form> Normaliser::dependents(const Place& place, Form form) {
  DI_ASSIGN(const std::vector<Dependent> all, read_dependents(place));
  for (const Dependent& d : all) {
    ObjectBranch without, with;
    without.properties.push_back({d.name, kNeverNode, false, false});
    with.properties.push_back({d.name, kAnyNode, true, false});
    for (const std::string& name : d.names) {
      if (name != d.name) with.properties.push_back({name, kAnyNode, true, false});
    }
    Form present = only_object(std::move(with));
    if (d.schema != nullptr) {
      DI_ASSIGN(const Form consequence, subform(place, *d.schema));
      DI_ASSIGN(present, meet(present, consequence));
    }
    Form either = Form::any();
    either.objects.assign(1, std::move(without));
    DI_TRY(unite(either, std::move(present)));
    auto met = meet(form, either);
    if (!met.ok()) return at(place, d.keyword, met.error());
    form = std::move(*met);
  }
  return form;
}

Result<Form> Normaliser::evaluated_form(const Place& place) {
  const bool only_reference = place.draft <= SchemaDraft::kDraft7 && place.get("$ref") != nullptr;
  Form form = Form::any();
  if (!only_reference) {
    DI_ASSIGN(form, assertions(place));
  }
  // Meets `form` with a part; a part that cannot be had refuses the schema or, on request, is dropped.
  const auto narrow = [&](std::string_view keyword, Result<Form> part) -> Status {
    if (!part.ok()) return loosen(place, keyword, part.error());
    auto met = meet(form, *part);
    if (!met.ok()) return at(place, keyword, met.error());
    form = std::move(*met);
    return {};
  };
  const auto narrow_all = [&](std::string_view keyword, const std::vector<NodeId>& nodes) -> Status {
    for (const NodeId node : nodes) {
      const auto part = this->form(node);
      DI_TRY(narrow(keyword, part.ok() ? Result<Form>(**part) : Result<Form>(part.error())));
    }
    return {};
  };
  DI_ASSIGN(const std::vector<NodeId> targets, references(place, false));
  DI_TRY(narrow_all("$ref", targets));
  if (only_reference) return form;
  DI_ASSIGN(const std::vector<NodeId> all, arms(place, "allOf", false));
  DI_TRY(narrow_all("allOf", all));
  if (place.get("anyOf") != nullptr) {
    DI_ASSIGN(const std::vector<NodeId> nodes, arms(place, "anyOf", false));
    std::vector<Form> forms;
    Status failure;
    for (const NodeId node : nodes) {
      const auto part = this->form(node);
      if (!part.ok()) {
        failure = part.error();
        break;
      }
      forms.push_back(**part);
    }
    DI_TRY(narrow("anyOf", failure.ok() ? any_of(std::move(forms)) : Result<Form>(failure.error())));
  }
  if (place.get("oneOf") != nullptr) DI_TRY(narrow("oneOf", one_of(place)));
  if (const JsonValue* negation = place.get("not")) {
    auto part = subform(place, *negation, true);
    if (part.ok()) clear_evaluated(*part);
    DI_TRY(narrow("not", std::move(part)));
  }
  if (place.draft >= SchemaDraft::kDraft7) DI_TRY(narrow("if", if_then_else(place)));
  auto dependent = dependents(place, form);
  if (dependent.ok())
    form = std::move(*dependent);
  else
    DI_TRY(loosen(place, "dependentSchemas", dependent.error()));
  return form;
}

Result<Form> Normaliser::schema_form(const Place& place) {
  warn_unknown_keywords(place);
  DI_ASSIGN(Form form, evaluated_form(place));
  if (place.draft >= SchemaDraft::kDraft201909) {
    DI_TRY(unevaluated_properties(place, form));
    DI_TRY(unevaluated_items(place, form));
  }
  return form;
}

Status Normaliser::unevaluated_properties(const Place& place, Form& form) {
  const JsonValue* schema = place.get("unevaluatedProperties");
  if (schema == nullptr) return {};
  auto rest = node_of(place, *schema);
  if (!rest.ok()) return rest.error();
  std::vector<ObjectBranch> kept;
  for (ObjectBranch& branch : form.objects) {
    if (!branch.evaluated_all) {
      StringBranch unseen;
      for (const LanguageId keys : branch.evaluated_keys)
        unseen.languages.push_back(strings_.complement(keys));
      std::sort(unseen.languages.begin(), unseen.languages.end());
      for (ObjectBranch::Property& p : branch.properties) {
        if (p.evaluated || !strings_.contains(unseen, p.name)) continue;
        auto value = both(p.value, *rest);
        if (!value.ok()) return value.error();
        p.value = *value;
      }
      if (*rest != kAnyNode) branch.rules.push_back({std::move(unseen), *rest});
      branch.evaluated_all = true;
    }
    if (tidy(branch, *this)) kept.push_back(std::move(branch));
  }
  form.objects = std::move(kept);
  return {};
}

Status Normaliser::unevaluated_items(const Place& place, Form& form) {
  const JsonValue* schema = place.get("unevaluatedItems");
  if (schema == nullptr) return {};
  auto rest = node_of(place, *schema);
  if (!rest.ok()) return rest.error();
  std::vector<ArrayBranch> kept;
  for (ArrayBranch& branch : form.arrays) {
    if (!branch.evaluated_all) {
      std::vector<NodeId> seen = branch.evaluated_contains;
      seen.push_back(*rest);
      auto allowed = either(std::move(seen));
      if (!allowed.ok()) return allowed.error();
      const auto narrow = [&](NodeId& item) -> Status {
        auto value = both(item, *allowed);
        if (!value.ok()) return value.error();
        item = *value;
        return {};
      };
      const auto evaluated = static_cast<std::size_t>(branch.evaluated_prefix);
      if (branch.prefix.size() < evaluated) branch.prefix.resize(evaluated, branch.rest);
      for (std::size_t i = evaluated; i < branch.prefix.size(); ++i) DI_TRY(narrow(branch.prefix[i]));
      DI_TRY(narrow(branch.rest));
      branch.evaluated_all = true;
    }
    if (tidy(branch, *this)) kept.push_back(std::move(branch));
  }
  form.arrays = std::move(kept);
  return {};
}

}  // namespace deepinfer::schema
