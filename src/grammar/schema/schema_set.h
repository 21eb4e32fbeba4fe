// The schema documents of one compilation: the schema itself plus the documents it may refer to, with every
// $id, $anchor and $dynamicAnchor found, so that a $ref is a table look-up. Owns the JSON trees; a SchemaSite
// points into them. Nothing is ever fetched: a reference to a document that was not handed in is an error.
// Not thread-safe (look-ups are memoised); one compilation owns one set.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "grammar/schema/json_value.h"

namespace deepinfer::schema {

/// Draft rules that differ: $ref siblings (ignored up to draft 7), `id` (draft 4), boolean exclusiveMinimum
/// (draft 4), array-valued `items` (up to 2019-09), `dependencies` (up to draft 7).
enum class SchemaDraft { kDraft4, kDraft6, kDraft7, kDraft201909, kDraft202012 };

/// A schema: its JSON and the resource (the nearest enclosing $id) that resolves its references.
struct SchemaSite {
  const JsonValue* value = nullptr;
  int resource = -1;
  bool operator==(const SchemaSite&) const = default;
};

struct SchemaResource {
  std::string uri;  // without fragment
  const JsonValue* root = nullptr;
  SchemaDraft draft = SchemaDraft::kDraft202012;
  bool validation_vocabulary = true;  // false when a custom metaschema leaves the validation vocabulary out
  std::map<std::string, SchemaSite, std::less<>> anchors;
  std::map<std::string, SchemaSite, std::less<>> dynamic_anchors;  // $recursiveAnchor: true is kept as ""
};

/// Where $schema and $ref may find further documents, by absolute URI without fragment.
using SchemaDocuments = std::map<std::string, std::string, std::less<>>;

class SchemaSet {
 public:
  /// Parses and indexes. `documents` must outlive the set.
  static Result<std::unique_ptr<SchemaSet>> load(std::string_view text, SchemaDraft default_draft,
                                                 const SchemaDocuments& documents, const TreeLimits& limits);

  SchemaSite root() const { return {main_, 0}; }
  const SchemaResource& resource(int id) const { return *resources_[static_cast<std::size_t>(id)]; }
  /// The site of a subschema of `parent` (its own resource when it carries an $id).
  SchemaSite child(const SchemaSite& parent, const JsonValue& value) const;
  /// The target of a reference as written at `from`.
  Result<SchemaSite> resolve(const SchemaSite& from, std::string_view reference);
  /// A name of a $dynamicAnchor that `reference` ends in, when its target is that anchor; empty optional
  /// otherwise.
  bool is_dynamic_target(const SchemaSite& from, std::string_view reference, std::string* anchor);
  /// Whether any resource has a dynamic anchor (otherwise dynamic scopes need no tracking).
  bool has_dynamic_anchors() const { return has_dynamic_anchors_; }
  /// JSON pointer of a value as a URI fragment, "#/properties/a"; documents other than the main one prefix
  /// their URI.
  std::string pointer(const JsonValue* value) const;

 private:
  struct Document {
    std::string uri;
    std::unique_ptr<JsonValue> root;
  };

  SchemaSet(const SchemaDocuments& documents, const TreeLimits& limits, SchemaDraft default_draft)
      : documents_(documents), limits_(limits), default_draft_(default_draft) {}

  Status add_document(const std::string& uri, std::string_view text);
  /// `uri`: the name it is reached by; its own $id is resolved against `base`.
  Result<int> add_resource(const std::string& uri, const JsonValue& root, SchemaDraft inherited,
                           const std::string& base);
  Status index(const JsonValue& value, int resource);
  Status index_children(const JsonValue& schema, int resource);
  Status read_dialect(SchemaResource& resource);
  Result<int> find_resource(std::string_view uri);
  Result<SchemaSite> follow_pointer(int resource, std::string_view fragment);

  const SchemaDocuments& documents_;
  TreeLimits limits_;
  SchemaDraft default_draft_;
  std::vector<Document> loaded_;
  const JsonValue* main_ = nullptr;
  std::vector<std::unique_ptr<SchemaResource>> resources_;
  std::unordered_map<std::string, int> by_uri_;
  std::unordered_map<const JsonValue*, int> resource_roots_;
  std::map<std::pair<int, std::string>, SchemaSite> resolved_;
  bool has_dynamic_anchors_ = false;
};

}  // namespace deepinfer::schema
