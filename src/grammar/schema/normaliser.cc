#include "grammar/schema/normaliser.h"

#include <algorithm>
#include <unordered_set>

namespace deepinfer::schema {
namespace {

constexpr int kMaxInPlaceDepth =
    120;  // $ref, allOf, ... applied to one value; each level costs a few C++ frames
constexpr int kMaxProbeDepth = 6;

bool mentions_unevaluated(const JsonValue& value) {
  for (const auto& [key, child] : value.members) {
    if (key == "unevaluatedProperties" || key == "unevaluatedItems" || mentions_unevaluated(child))
      return true;
  }
  return std::any_of(value.items.begin(), value.items.end(), mentions_unevaluated);
}

constexpr std::size_t kMaxWarnings = 20;

// Keywords with a meaning in some draft, and those that are comments by definition.
const std::unordered_set<std::string_view>& known_keywords() {
  static const std::unordered_set<std::string_view> known = {"$schema",
                                                             "$id",
                                                             "id",
                                                             "$ref",
                                                             "$defs",
                                                             "definitions",
                                                             "$anchor",
                                                             "$dynamicRef",
                                                             "$dynamicAnchor",
                                                             "$recursiveRef",
                                                             "$recursiveAnchor",
                                                             "$vocabulary",
                                                             "$comment",
                                                             "type",
                                                             "enum",
                                                             "const",
                                                             "multipleOf",
                                                             "minimum",
                                                             "maximum",
                                                             "exclusiveMinimum",
                                                             "exclusiveMaximum",
                                                             "minLength",
                                                             "maxLength",
                                                             "pattern",
                                                             "format",
                                                             "items",
                                                             "prefixItems",
                                                             "additionalItems",
                                                             "contains",
                                                             "minContains",
                                                             "maxContains",
                                                             "minItems",
                                                             "maxItems",
                                                             "uniqueItems",
                                                             "unevaluatedItems",
                                                             "properties",
                                                             "patternProperties",
                                                             "additionalProperties",
                                                             "propertyNames",
                                                             "required",
                                                             "minProperties",
                                                             "maxProperties",
                                                             "unevaluatedProperties",
                                                             "dependencies",
                                                             "dependentRequired",
                                                             "dependentSchemas",
                                                             "allOf",
                                                             "anyOf",
                                                             "oneOf",
                                                             "not",
                                                             "if",
                                                             "then",
                                                             "else",
                                                             "title",
                                                             "description",
                                                             "default",
                                                             "examples",
                                                             "example",
                                                             "deprecated",
                                                             "readOnly",
                                                             "writeOnly",
                                                             "contentEncoding",
                                                             "contentMediaType",
                                                             "contentSchema"};
  return known;
}

class Deeper {
 public:
  explicit Deeper(int& depth) : depth_(depth) { ++depth_; }
  ~Deeper() { --depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  int& depth_;
};

}  // namespace

Normaliser::Normaliser(SchemaSet& set, StringAlgebra& strings, const SchemaOptions& options)
    : set_(set), strings_(strings), options_(options) {
  nodes_.resize(2);  // kAnyNode, kNeverNode
  nodes_[kAnyNode].form = std::make_unique<Form>(Form::any());
  nodes_[kNeverNode].form = std::make_unique<Form>(Form::never());
  node_index_.emplace(std::vector<LiteralId>{}, kAnyNode);
  scopes_.emplace_back();
  // References may lead into supplied documents, which are loaded later.
  track_evaluated_ = mentions_unevaluated(*set.root().value);
  for (const auto& [uri, text] : options.documents) {
    track_evaluated_ = track_evaluated_ || text.find("unevaluated") != std::string::npos;
  }
}

Result<NodeId> Normaliser::root() {
  return node_of(set_.root(), 0, false);
}

Normaliser::ScopeId Normaliser::enter(ScopeId scope, int resource) {
  const auto& anchors = set_.resource(resource).dynamic_anchors;
  if (anchors.empty()) return scope;
  const auto key = std::make_pair(scope, resource);
  if (const auto known = entered_.find(key); known != entered_.end()) return known->second;
  Scope deeper = scopes_[static_cast<std::size_t>(scope)];
  for (const auto& [name, site] : anchors) deeper.try_emplace(name, site);
  const auto same = std::find(scopes_.begin(), scopes_.end(), deeper);
  const auto id = static_cast<ScopeId>(same - scopes_.begin());
  if (same == scopes_.end()) scopes_.push_back(std::move(deeper));
  entered_.emplace(key, id);
  return id;
}

Normaliser::Place Normaliser::place_of(const SchemaSite& site, ScopeId scope) const {
  const SchemaResource& resource = set_.resource(site.resource);
  return {site, scope, resource.draft, resource.validation_vocabulary};
}

Normaliser::LiteralId Normaliser::literal_of(Literal literal) {
  const auto fresh = static_cast<LiteralId>(literals_.size() * 2);
  LiteralId id = fresh;
  switch (literal.kind) {
    case Literal::Kind::kSchema:
      id = schema_literals_.try_emplace({literal.site.value, literal.scope}, fresh).first->second;
      break;
    case Literal::Kind::kConstant:
      id = constant_literals_.try_emplace(literal.constant, fresh).first->second;
      break;
    case Literal::Kind::kUnion:
      id = union_literals_.try_emplace(literal.members, fresh).first->second;
      break;
  }
  if (id == fresh) {
    literals_.push_back(std::move(literal));
    expansions_.resize(expansions_.size() + 2);
  }
  return id;
}

Result<NodeId> Normaliser::node_of(std::vector<LiteralId> literals) {
  std::sort(literals.begin(), literals.end());
  literals.erase(std::unique(literals.begin(), literals.end()), literals.end());
  for (std::size_t i = 1; i < literals.size(); ++i) {
    if ((literals[i - 1] ^ 1) == literals[i]) return kNeverNode;
  }
  if (const auto known = node_index_.find(literals); known != node_index_.end()) return known->second;
  if (nodes_.size() >= options_.max_nodes) {
    return Error{ErrorCode::kDeadline,
                 "the schema needs more than " + std::to_string(options_.max_nodes) + " distinct subschemas",
                 {}};
  }
  const auto id = static_cast<NodeId>(nodes_.size());
  nodes_.emplace_back();
  nodes_.back().literals = literals;
  node_index_.emplace(std::move(literals), id);
  return id;
}

Result<NodeId> Normaliser::node_of(const SchemaSite& site, ScopeId scope, bool negated) {
  if (site.value->is_bool()) return site.value->boolean != negated ? kAnyNode : kNeverNode;
  if (site.value->is_object() && site.value->members.empty()) return negated ? kNeverNode : kAnyNode;
  Literal literal;
  literal.site = identity_.representative(site);
  literal.scope = enter(scope, site.resource);
  return node_of(std::vector<LiteralId>{literal_of(std::move(literal)) | (negated ? 1 : 0)});
}

Result<NodeId> Normaliser::node_of(const Place& parent, const JsonValue& subschema, bool negated) {
  return node_of(set_.child(parent.site, subschema), parent.scope, negated);
}

Result<NodeId> Normaliser::constant_node(const JsonValue& value, bool negated) {
  Literal literal;
  literal.kind = Literal::Kind::kConstant;
  literal.constant = &value;
  return node_of(std::vector<LiteralId>{literal_of(std::move(literal)) | (negated ? 1 : 0)});
}

Result<NodeId> Normaliser::either(std::vector<NodeId> members) {
  std::sort(members.begin(), members.end());
  members.erase(std::unique(members.begin(), members.end()), members.end());
  std::erase(members, kNeverNode);
  if (members.empty()) return kNeverNode;
  if (members.front() == kAnyNode) return kAnyNode;
  if (members.size() == 1) return members.front();
  Literal literal;
  literal.kind = Literal::Kind::kUnion;
  literal.members = std::move(members);
  return node_of(std::vector<LiteralId>{literal_of(std::move(literal))});
}

Result<NodeId> Normaliser::both(NodeId a, NodeId b) {
  if (a == kAnyNode || a == b) return b;
  if (b == kAnyNode) return a;
  if (a == kNeverNode || b == kNeverNode) return kNeverNode;
  std::vector<LiteralId> literals = nodes_[static_cast<std::size_t>(a)].literals;
  const auto& more = nodes_[static_cast<std::size_t>(b)].literals;
  literals.insert(literals.end(), more.begin(), more.end());
  return node_of(std::move(literals));
}

Result<NodeId> Normaliser::negate(NodeId node) {
  if (node == kAnyNode) return kNeverNode;
  if (node == kNeverNode) return kAnyNode;
  std::vector<NodeId> parts;
  for (const LiteralId literal : std::vector<LiteralId>(nodes_[static_cast<std::size_t>(node)].literals)) {
    DI_ASSIGN(const NodeId part, node_of(std::vector<LiteralId>{literal ^ 1}));
    parts.push_back(part);
  }
  return either(std::move(parts));
}

Result<Form> Normaliser::meet(const Form& a, const Form& b) {
  work_ += 1 + a.objects.size() * b.objects.size() + a.arrays.size() * b.arrays.size() +
           (a.strings.size() * b.strings.size() + a.numbers.size() * b.numbers.size()) / 4;
  if (work_ > options_.max_branch_work) {
    return Error{ErrorCode::kDeadline,
                 "the schema combines too many alternatives (over " +
                     std::to_string(options_.max_branch_work) + " pairs)",
                 {}};
  }
  return intersect(a, b, *this);
}

Result<const Form*> Normaliser::form(NodeId id) {
  Node& node = nodes_[static_cast<std::size_t>(id)];
  if (node.form) return const_cast<const Form*>(node.form.get());
  if (node.running) {
    return unsupported("refers to itself without a member or an element between", describe(id));
  }
  node.running = true;
  Form total;
  for (std::size_t i = 0; i < node.literals.size(); ++i) {
    auto part = expand(node.literals[i]);
    if (!part.ok()) {
      node.running = false;
      return part.error();
    }
    if (i == 0) {
      total = **part;
      continue;
    }
    auto met = meet(total, **part);
    if (!met.ok()) {
      node.running = false;
      return met.error().where.empty() ? met.error().at(describe(id)) : met.error();
    }
    total = std::move(*met);
  }
  node.running = false;
  node.form = std::make_unique<Form>(std::move(total));
  return const_cast<const Form*>(node.form.get());
}

bool Normaliser::implies(NodeId a, NodeId b) {
  if (a == b || b == kAnyNode || a == kNeverNode) return true;
  if (a == kAnyNode || b == kNeverNode) return false;
  const auto& more = nodes_[static_cast<std::size_t>(a)].literals;
  const auto& fewer = nodes_[static_cast<std::size_t>(b)].literals;
  return std::includes(more.begin(), more.end(), fewer.begin(), fewer.end());
}

bool Normaliser::surely_empty(NodeId id) {
  if (id == kNeverNode) return true;
  if (id == kAnyNode) return false;
  const Node& node = nodes_[static_cast<std::size_t>(id)];
  if (node.form) return node.form->is_never();
  if (node.running || probe_depth_ >= kMaxProbeDepth || depth_ > kMaxInPlaceDepth / 2) return false;
  for (const LiteralId literal : node.literals) {
    if (expansions_[static_cast<std::size_t>(literal)].state == Expansion::State::kRunning) return false;
  }
  const Deeper deeper(probe_depth_);
  const auto found = form(id);
  return found.ok() && (*found)->is_never();
}

Result<const Form*> Normaliser::expand(LiteralId literal) {
  Expansion& slot = expansions_[static_cast<std::size_t>(literal)];
  if (slot.state == Expansion::State::kDone) return const_cast<const Form*>(&slot.form);
  const Literal& what = literals_[static_cast<std::size_t>(literal / 2)];
  if (slot.state == Expansion::State::kRunning) {
    return unsupported("refers to itself without a member or an element between",
                       what.kind == Literal::Kind::kSchema ? set_.pointer(what.site.value) : "");
  }
  if (depth_ >= kMaxInPlaceDepth) {
    return Error{ErrorCode::kDeadline,
                 "applies more than " + std::to_string(kMaxInPlaceDepth) +
                     " nested schemas or references to one value",
                 what.kind == Literal::Kind::kSchema ? set_.pointer(what.site.value) : ""};
  }
  const Deeper deeper(depth_);
  slot.state = Expansion::State::kRunning;
  auto made = expand_now(literal);
  if (!made.ok()) {
    slot.state = Expansion::State::kNew;
    return made.error();
  }
  slot.form = std::move(*made);
  slot.state = Expansion::State::kDone;
  return const_cast<const Form*>(&slot.form);
}

Result<Form> Normaliser::expand_now(LiteralId id) {
  const Literal& literal = literals_[static_cast<std::size_t>(id / 2)];
  const bool negated = (id & 1) != 0;
  if (literal.kind == Literal::Kind::kConstant) {
    return negated ? negated_constant(*literal.constant) : constant_form(*literal.constant);
  }
  if (literal.kind == Literal::Kind::kUnion) {
    Form out = negated ? Form::any() : Form::never();
    for (const NodeId member : literal.members) {
      if (negated) {
        DI_ASSIGN(const NodeId outside, negate(member));
        DI_ASSIGN(const Form* part, form(outside));
        DI_ASSIGN(out, meet(out, *part));
      } else {
        DI_ASSIGN(const Form* part, form(member));
        DI_TRY(unite(out, *part));
      }
    }
    return out;
  }
  const Place place = place_of(literal.site, literal.scope);
  if (!place.site.value->is_object()) {
    return invalid_argument("a schema must be an object or a boolean", set_.pointer(place.site.value));
  }
  if (!negated) return schema_form(place);
  auto out = negated_schema(place);
  if (out.ok() || !options_.best_effort || out.error().code != ErrorCode::kUnsupported) return out;
  loosened.push_back({set_.pointer(place.site.value), "not", out.error().message});
  return Form::any();
}

Result<Form> Normaliser::subform(const Place& parent, const JsonValue& subschema, bool negated) {
  DI_ASSIGN(const NodeId node, node_of(parent, subschema, negated));
  DI_ASSIGN(const Form* found, form(node));
  return *found;
}

std::string Normaliser::describe(NodeId id) const {
  for (const LiteralId literal : nodes_[static_cast<std::size_t>(id)].literals) {
    const Literal& what = literals_[static_cast<std::size_t>(literal / 2)];
    if (what.kind == Literal::Kind::kSchema) return set_.pointer(what.site.value);
  }
  return "#";
}

Error Normaliser::at(const Place& place, std::string_view keyword, Error error) const {
  if (error.where.empty()) error.where = set_.pointer(place.site.value) + "/" + std::string(keyword);
  return error;
}

Error Normaliser::malformed(const Place& place, std::string_view keyword, const std::string& expected) const {
  return invalid_argument("'" + std::string(keyword) + "' must be " + expected,
                          set_.pointer(place.site.value) + "/" + std::string(keyword));
}

void Normaliser::warn(const JsonValue& where, std::string_view keyword, std::string reason) {
  if (warnings.size() >= kMaxWarnings) return;
  warnings.push_back({set_.pointer(&where), std::string(keyword), std::move(reason)});
}

void Normaliser::warn_unknown_keywords(const Place& place) {
  if (warnings.size() >= kMaxWarnings || !noted_.insert(place.site.value).second) return;
  for (const auto& [key, value] : place.site.value->members) {
    if (!key.starts_with("x-") && !known_keywords().contains(key))
      warn(value, key, "no JSON Schema keyword; it has no effect");
  }
}

Status Normaliser::refuse(const SchemaSite& site, std::string_view keyword, const std::string& reason) {
  const std::string where = set_.pointer(site.value) + "/" + std::string(keyword);
  if (!options_.best_effort) {
    return unsupported("keyword '" + std::string(keyword) + "' cannot be enforced: " + reason, where);
  }
  loosened.push_back({where, std::string(keyword), reason});
  return {};
}

// Breadth first through everything applied in place; the node's first subschema when none has the keyword
// itself.
SchemaSite Normaliser::find_keyword(NodeId id, std::string_view keyword) {
  std::vector<SchemaSite> queue;
  std::set<const JsonValue*> seen;
  const auto push = [&](const SchemaSite& site) {
    if (site.value->is_object() && seen.insert(site.value).second) queue.push_back(site);
  };
  for (const LiteralId literal : nodes_[static_cast<std::size_t>(id)].literals) {
    const Literal& what = literals_[static_cast<std::size_t>(literal / 2)];
    if (what.kind == Literal::Kind::kSchema) push(what.site);
  }
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const SchemaSite at = queue[i];
    if (at.value->find(keyword) != nullptr) return at;
    for (const auto& [key, value] : at.value->members) {
      if (key == "$ref" && value.is_string()) {
        if (const auto target = set_.resolve(at, value.text); target.ok()) push(*target);
      } else if (key == "not" || key == "if" || key == "then" || key == "else") {
        push(set_.child(at, value));
      } else if (key == "allOf" || key == "anyOf" || key == "oneOf") {
        for (const JsonValue& arm : value.items) push(set_.child(at, arm));
      }
    }
  }
  return queue.empty() ? set_.root() : queue.front();
}

Status Normaliser::refuse_in(NodeId node, std::string_view keyword, const std::string& reason) {
  return refuse(find_keyword(node, keyword), keyword, reason);
}

Status Normaliser::loosen(const Place& place, std::string_view keyword, const Error& error) {
  if (error.code != ErrorCode::kUnsupported) return at(place, keyword, error);
  if (!options_.best_effort && !error.where.empty()) return error;
  return refuse(place.site, keyword, error.message);
}

Form Normaliser::only_number(NumberBranch branch) {
  Form out;
  if (tidy(branch)) out.numbers.push_back(std::move(branch));
  return out;
}
Form Normaliser::only_string(StringBranch branch) {
  Form out;
  out.strings.push_back(std::move(branch));
  return out;
}
Form Normaliser::only_array(ArrayBranch branch) {
  Form out;
  out.arrays.push_back(std::move(branch));
  return out;
}
Form Normaliser::only_object(ObjectBranch branch) {
  Form out;
  out.objects.push_back(std::move(branch));
  return out;
}

}  // namespace deepinfer::schema
