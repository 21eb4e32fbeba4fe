#include "grammar/schema/schema_set.h"

#include <array>

#include "grammar/schema/uri.h"
#include "io/json.h"

namespace deepinfer::schema {
namespace {

constexpr std::array<std::string_view, 12> kSchemaKeywords = {"additionalProperties",
                                                              "unevaluatedProperties",
                                                              "propertyNames",
                                                              "items",
                                                              "additionalItems",
                                                              "unevaluatedItems",
                                                              "contains",
                                                              "not",
                                                              "if",
                                                              "then",
                                                              "else",
                                                              "contentSchema"};
constexpr std::array<std::string_view, 5> kSchemaListKeywords = {"allOf", "anyOf", "oneOf", "prefixItems",
                                                                 "items"};
constexpr std::array<std::string_view, 6> kSchemaMapKeywords = {
    "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"};

// Draft of a metaschema URI we know by name.
bool known_draft(std::string_view uri, SchemaDraft* draft) {
  const auto has = [&](std::string_view part) { return uri.find(part) != std::string_view::npos; };
  if (!has("json-schema.org/")) return false;
  if (has("2020-12/schema"))
    *draft = SchemaDraft::kDraft202012;
  else if (has("2019-09/schema"))
    *draft = SchemaDraft::kDraft201909;
  else if (has("draft-07/schema"))
    *draft = SchemaDraft::kDraft7;
  else if (has("draft-06/schema"))
    *draft = SchemaDraft::kDraft6;
  else if (has("draft-04/schema"))
    *draft = SchemaDraft::kDraft4;
  else if (uri == "http://json-schema.org/schema#" || uri == "http://json-schema.org/schema")
    return false;
  else
    return false;
  return true;
}

const JsonValue* string_member(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  return value != nullptr && value->is_string() ? value : nullptr;
}

std::string unescape_pointer(std::string_view token) {
  std::string out;
  for (std::size_t i = 0; i < token.size(); ++i) {
    if (token[i] == '~' && i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1')) {
      out += token[++i] == '0' ? '~' : '/';
    } else {
      out += token[i];
    }
  }
  return out;
}

bool find_pointer(const JsonValue& at, const JsonValue* wanted, std::string& path) {
  if (&at == wanted) return true;
  const std::size_t length = path.size();
  for (const auto& [key, value] : at.members) {
    path += "/" + json_pointer_token(key);
    if (find_pointer(value, wanted, path)) return true;
    path.resize(length);
  }
  for (std::size_t i = 0; i < at.items.size(); ++i) {
    path += "/" + std::to_string(i);
    if (find_pointer(at.items[i], wanted, path)) return true;
    path.resize(length);
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<SchemaSet>> SchemaSet::load(std::string_view text, SchemaDraft default_draft,
                                                   const SchemaDocuments& documents,
                                                   const TreeLimits& limits) {
  std::unique_ptr<SchemaSet> set(new SchemaSet(documents, limits, default_draft));
  DI_TRY(set->add_document("", text));
  set->main_ = set->loaded_.front().root.get();
  return set;
}

Status SchemaSet::add_document(const std::string& uri, std::string_view text) {
  auto parsed = parse_json_value(text, limits_);
  if (!parsed.ok()) return parsed.error().at(uri.empty() ? "schema" : uri);
  loaded_.push_back({uri, std::make_unique<JsonValue>(std::move(parsed).value())});
  auto resource = add_resource(uri, *loaded_.back().root, default_draft_, uri);
  if (!resource.ok()) return resource.error();
  return {};
}

Result<int> SchemaSet::add_resource(const std::string& uri, const JsonValue& root, SchemaDraft inherited,
                                    const std::string& base) {
  auto made = std::make_unique<SchemaResource>();
  made->uri = uri;
  made->root = &root;
  made->draft = inherited;
  SchemaResource& resource = *made;
  const int id = static_cast<int>(resources_.size());
  resources_.push_back(std::move(made));
  resource_roots_.emplace(&root, id);
  by_uri_.try_emplace(uri, id);
  DI_TRY(read_dialect(resource));
  // The root's own $id renames the resource; the retrieval URI stays a second name for it.
  const char* id_keyword = resource.draft == SchemaDraft::kDraft4 ? "id" : "$id";
  const bool ref_hides_id = resource.draft <= SchemaDraft::kDraft7 && root.find("$ref") != nullptr;
  if (const JsonValue* own = string_member(root, id_keyword); own != nullptr && !ref_hides_id) {
    const std::string absolute = resolve_uri(base, own->text);
    resource.uri = std::string(split_fragment(absolute).resource);
    by_uri_.try_emplace(resource.uri, id);
  }
  DI_TRY(index(root, id));
  return id;
}

Status SchemaSet::read_dialect(SchemaResource& resource) {
  const JsonValue* dialect = string_member(*resource.root, "$schema");
  if (dialect == nullptr) return {};
  if (known_draft(dialect->text, &resource.draft)) return {};
  const std::string uri(split_fragment(dialect->text).resource);
  const auto meta = documents_.find(uri);
  if (meta == documents_.end()) return {};
  auto parsed = parse_json_value(meta->second, limits_);
  if (!parsed.ok()) return parsed.error().at(uri);
  if (const JsonValue* base = string_member(*parsed, "$schema"); base != nullptr) {
    known_draft(base->text, &resource.draft);
  }
  if (const JsonValue* vocabulary = parsed->find("$vocabulary");
      vocabulary != nullptr && vocabulary->is_object()) {
    resource.validation_vocabulary = false;
    for (const auto& [name, required] : vocabulary->members) {
      if (name.ends_with("/vocab/validation")) resource.validation_vocabulary = true;
    }
  }
  return {};
}

Status SchemaSet::index(const JsonValue& value, int resource) {
  if (!value.is_object()) return {};
  SchemaResource& at = *resources_[static_cast<std::size_t>(resource)];
  const SchemaSite site{&value, resource};
  const bool old_ref = at.draft <= SchemaDraft::kDraft7 && value.find("$ref") != nullptr;
  if (at.draft <= SchemaDraft::kDraft7) {
    const JsonValue* id = string_member(value, at.draft == SchemaDraft::kDraft4 ? "id" : "$id");
    if (id != nullptr && !old_ref) {
      const std::string_view fragment = split_fragment(id->text).fragment;
      if (!fragment.empty()) at.anchors.emplace(percent_decode(fragment), site);
    }
  } else {
    if (const JsonValue* anchor = string_member(value, "$anchor")) at.anchors.emplace(anchor->text, site);
    if (const JsonValue* anchor = string_member(value, "$dynamicAnchor")) {
      at.anchors.emplace(anchor->text, site);
      at.dynamic_anchors.emplace(anchor->text, site);
      has_dynamic_anchors_ = true;
    }
    const JsonValue* recursive = value.find("$recursiveAnchor");
    if (recursive != nullptr && recursive->boolean && at.draft == SchemaDraft::kDraft201909 &&
        &value == at.root) {
      at.dynamic_anchors.emplace("", site);
      has_dynamic_anchors_ = true;
    }
  }
  return index_children(value, resource);
}

Status SchemaSet::index_children(const JsonValue& schema, int resource) {
  const auto visit = [&](const JsonValue& child) -> Status {
    if (!child.is_object()) return {};
    const SchemaDraft draft = resources_[static_cast<std::size_t>(resource)]->draft;
    const JsonValue* id = string_member(child, draft == SchemaDraft::kDraft4 ? "id" : "$id");
    const bool hidden = draft <= SchemaDraft::kDraft7 && child.find("$ref") != nullptr;
    if (id != nullptr && !hidden && !split_fragment(id->text).resource.empty()) {
      const std::string base = resources_[static_cast<std::size_t>(resource)]->uri;
      const std::string uri = resolve_uri(base, id->text);
      auto added = add_resource(std::string(split_fragment(uri).resource), child, draft, base);
      if (!added.ok()) return added.error();
      return {};
    }
    return index(child, resource);
  };
  for (const std::string_view key : kSchemaKeywords) {
    if (const JsonValue* child = schema.find(key)) DI_TRY(visit(*child));
  }
  for (const std::string_view key : kSchemaListKeywords) {
    const JsonValue* list = schema.find(key);
    if (list == nullptr || !list->is_array()) continue;
    for (const JsonValue& child : list->items) DI_TRY(visit(child));
  }
  for (const std::string_view key : kSchemaMapKeywords) {
    const JsonValue* map = schema.find(key);
    if (map == nullptr) continue;
    for (const auto& [name, child] : map->members) DI_TRY(visit(child));
  }
  return {};
}

SchemaSite SchemaSet::child(const SchemaSite& parent, const JsonValue& value) const {
  const auto own = resource_roots_.find(&value);
  return {&value, own == resource_roots_.end() ? parent.resource : own->second};
}

Result<int> SchemaSet::find_resource(std::string_view uri) {
  if (const auto known = by_uri_.find(std::string(uri)); known != by_uri_.end()) return known->second;
  const auto document = documents_.find(uri);
  if (document == documents_.end()) {
    return unsupported("refers to '" + std::string(uri) +
                       "', which is neither in the schema nor a supplied document");
  }
  DI_TRY(add_document(std::string(uri), document->second));
  return by_uri_.at(std::string(uri));
}

Result<SchemaSite> SchemaSet::follow_pointer(int resource, std::string_view fragment) {
  SchemaSite at{this->resource(resource).root, resource};
  const std::string path = percent_decode(fragment);
  std::size_t from = 1;
  while (from <= path.size() && !path.empty()) {
    std::size_t to = path.find('/', from);
    if (to == std::string::npos) to = path.size();
    const std::string token = unescape_pointer(std::string_view(path).substr(from, to - from));
    const JsonValue* next = at.value->find(token);
    if (next == nullptr && at.value->is_array() && !token.empty() && token.size() < 9 &&
        token.find_first_not_of("0123456789") == std::string::npos) {
      const auto position = static_cast<std::size_t>(std::stoi(token));
      if (position < at.value->items.size()) next = &at.value->items[position];
    }
    if (next == nullptr) return not_found("the reference '#" + path + "' leads nowhere");
    at = child(at, *next);
    from = to + 1;
  }
  return at;
}

Result<SchemaSite> SchemaSet::resolve(const SchemaSite& from, std::string_view reference) {
  const auto key = std::make_pair(from.resource, std::string(reference));
  if (const auto known = resolved_.find(key); known != resolved_.end()) return known->second;
  const std::string absolute = resolve_uri(resource(from.resource).uri, reference);
  const SplitUri parts = split_fragment(absolute);
  const bool local = reference.empty() || reference.starts_with('#');
  int target = from.resource;
  if (!local) {
    DI_ASSIGN(target, find_resource(parts.resource));
  }
  const SchemaResource& owner = resource(target);
  SchemaSite site;
  if (parts.fragment.empty() || parts.fragment.starts_with('/')) {
    DI_ASSIGN(site, follow_pointer(target, parts.fragment));
  } else {
    const auto anchor = owner.anchors.find(percent_decode(parts.fragment));
    if (anchor == owner.anchors.end())
      return not_found("no anchor '" + std::string(reference) + "' in the schema");
    site = anchor->second;
  }
  if (!site.value->is_object() && !site.value->is_bool()) {
    return invalid_argument("the reference '" + std::string(reference) +
                            "' leads to something that is no schema");
  }
  resolved_.emplace(key, site);
  return site;
}

bool SchemaSet::is_dynamic_target(const SchemaSite& from, std::string_view reference, std::string* anchor) {
  const auto site = resolve(from, reference);
  if (!site.ok()) return false;
  const std::string name = percent_decode(split_fragment(reference).fragment);
  const auto& anchors = resource(site->resource).dynamic_anchors;
  const auto found = anchors.find(name);
  if (found == anchors.end() || !(found->second == *site)) return false;
  *anchor = name;
  return true;
}

std::string SchemaSet::pointer(const JsonValue* value) const {
  for (const Document& document : loaded_) {
    std::string path;
    if (find_pointer(*document.root, value, path)) return document.uri + "#" + path;
  }
  return "#";
}

}  // namespace deepinfer::schema
