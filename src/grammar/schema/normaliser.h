// Turns schemas into normal forms (form.h), lazily: a NodeId names a conjunction of subschemas, and its form
// is computed when asked for. Equal conjunctions are one node, so recursive schemas give finitely many nodes.
//
// A literal is a subschema, a constant or a union of nodes, or the negation of one; literal l ^ 1 negates l.
// Each keyword has a positive meaning (normalise_assertions.cc, normalise_applicators.cc) and a negation
// (normalise_negation.cc). Two negations are narrower than the truth, which keeps every answer sound: that of
// `uniqueItems` is empty, and that of an unevaluated keyword counts as evaluated what any arm could evaluate.
// One compilation owns one Normaliser; not thread-safe. Bounded by max_nodes, max_branch_work and an in-place
// depth.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "grammar/schema/form.h"
#include "grammar/schema/options.h"
#include "grammar/schema/schema_identity.h"
#include "grammar/schema/schema_set.h"
#include "grammar/schema/string_algebra.h"

namespace deepinfer::schema {

class Normaliser : public FormContext {
 public:
  Normaliser(SchemaSet& set, StringAlgebra& strings, const SchemaOptions& options);

  /// The node of the whole schema.
  Result<NodeId> root();
  /// The form of a node; the pointer stays valid.
  Result<const Form*> form(NodeId node);
  Result<NodeId> negate(NodeId node);
  /// Everything that is in at least one of the nodes.
  Result<NodeId> either(std::vector<NodeId> nodes);

  Result<NodeId> both(NodeId a, NodeId b) override;
  bool implies(NodeId a, NodeId b) override;
  bool surely_empty(NodeId node) override;
  bool contains(const StringBranch& branch, const std::string& text) override {
    return strings_.contains(branch, text);
  }
  bool surely_empty(const StringBranch& branch) override { return strings_.surely_empty(branch); }

  StringAlgebra& strings() { return strings_; }
  const SchemaOptions& options() const { return options_; }
  std::size_t node_count() const { return nodes_.size(); }
  /// A place to name in errors about a node: the pointer of its first subschema.
  std::string describe(NodeId node) const;

  std::vector<SchemaNote> loosened;
  std::vector<SchemaNote> warnings;

  /// Records a loosening when best effort is on; otherwise the error that refuses the schema.
  Status refuse(const SchemaSite& site, std::string_view keyword, const std::string& reason);
  /// The same for a keyword somewhere among the subschemas that apply to the values of `node`.
  Status refuse_in(NodeId node, std::string_view keyword, const std::string& reason);

 private:
  using LiteralId = std::int32_t;
  using ScopeId = std::int32_t;
  // The outermost resource that defines each dynamic anchor, of those entered so far.
  using Scope = std::map<std::string, SchemaSite>;

  struct Literal {
    enum class Kind : std::uint8_t { kSchema, kConstant, kUnion } kind = Kind::kSchema;
    SchemaSite site;                      // kSchema
    ScopeId scope = 0;                    // kSchema
    const JsonValue* constant = nullptr;  // kConstant
    std::vector<NodeId> members;          // kUnion
  };
  struct Expansion {
    enum class State : std::uint8_t { kNew, kRunning, kDone } state = State::kNew;
    Form form;
  };
  struct Node {
    std::vector<LiteralId> literals;  // sorted
    std::unique_ptr<Form> form;       // null until asked for
    bool running = false;
  };
  /// A subschema with the dynamic scope it is reached through.
  struct Place {
    SchemaSite site;
    ScopeId scope = 0;
    SchemaDraft draft = SchemaDraft::kDraft202012;
    bool validation = true;
    const JsonValue* get(std::string_view key) const { return site.value->find(key); }
  };

  // normaliser.cc
  Result<NodeId> node_of(std::vector<LiteralId> literals);
  Result<NodeId> node_of(const Place& parent, const JsonValue& subschema, bool negated = false);
  Result<NodeId> node_of(const SchemaSite& site, ScopeId scope, bool negated);
  Result<NodeId> constant_node(const JsonValue& value, bool negated = false);
  LiteralId literal_of(Literal literal);
  Result<const Form*> expand(LiteralId literal);
  Result<Form> expand_now(LiteralId literal);
  Result<Form> subform(const Place& parent, const JsonValue& subschema, bool negated = false);
  ScopeId enter(ScopeId scope, int resource);
  Result<Form> meet(const Form& a, const Form& b);
  Error at(const Place& place, std::string_view keyword, Error error) const;
  Error malformed(const Place& place, std::string_view keyword, const std::string& expected) const;
  SchemaSite find_keyword(NodeId node, std::string_view keyword);
  void warn(const JsonValue& at, std::string_view keyword, std::string reason);
  void warn_unknown_keywords(const Place& place);
  Status loosen(const Place& place, std::string_view keyword, const Error& error);

  // normalise_assertions.cc: keywords that look at the value itself or at its members and elements
  struct Types {
    bool null = true, boolean = true, number = true, integer_only = false, string = true, array = true,
         object = true;
  };
  Result<Types> read_types(const Place& place);
  Result<Form> assertions(const Place& place);
  Result<NumberBranch> number_branch(const Place& place);
  Result<StringBranch> string_branch(const Place& place);
  Result<ArrayBranch> array_branch(const Place& place);
  Result<ObjectBranch> object_branch(const Place& place);
  Status apply_property_names(const Place& place, ObjectBranch& branch);
  Result<std::optional<std::int64_t>> count(const Place& place, std::string_view keyword);
  Result<std::optional<Decimal>> number(const Place& place, std::string_view keyword);
  Result<std::optional<LanguageId>> known_format(const Place& place);
  Result<std::vector<std::pair<LanguageId, const JsonValue*>>> pattern_properties(const Place& place);
  Status read_array_shape(const Place& place, std::vector<const JsonValue*>& prefix, const JsonValue** rest,
                          const char** rest_keyword);
  Result<Form> constant_form(const JsonValue& value);
  Result<Form> enum_form(const Place& place, bool negated);

  // normalise_applicators.cc: keywords that apply further schemas to the same value
  /// Without the unevaluated keywords: what they look at.
  Result<Form> evaluated_form(const Place& place);
  Result<Form> schema_form(const Place& place);
  Result<std::vector<NodeId>> arms(const Place& place, std::string_view keyword, bool negated);
  Result<Form> any_of(std::vector<Form> forms);
  Result<Form> one_of(const Place& place);
  Result<Form> if_then_else(const Place& place);
  Result<Form> dependents(const Place& place, Form form);
  /// What depends on the presence of a member: names that must then be there, or a schema.
  struct Dependent {
    std::string name;
    std::vector<std::string> names;
    const JsonValue* schema = nullptr;
    const char* keyword = "";
  };
  Result<std::vector<Dependent>> read_dependents(const Place& place);
  /// Nodes that $ref, $dynamicRef and $recursiveRef lead to.
  Result<std::vector<NodeId>> references(const Place& place, bool negated);
  Status unevaluated_properties(const Place& place, Form& form);
  Status unevaluated_items(const Place& place, Form& form);

  // normalise_negation.cc
  Result<Form> negated_schema(const Place& place);
  Status negate_types(const Place& place, Form& into);
  Status negate_numbers(const Place& place, Form& into);
  Status negate_strings(const Place& place, Form& into);
  Status negate_arrays(const Place& place, Form& into);
  Status negate_objects(const Place& place, Form& into);
  Status negate_in_place(const Place& place, Form& into);
  Status negate_unevaluated(const Place& place, Form& into);
  Result<Form> negated_constant(const JsonValue& value);

  Place place_of(const SchemaSite& site, ScopeId scope) const;
  static Form only_number(NumberBranch branch);
  static Form only_string(StringBranch branch);
  static Form only_array(ArrayBranch branch);
  static Form only_object(ObjectBranch branch);

  SchemaSet& set_;
  StringAlgebra& strings_;
  const SchemaOptions& options_;
  SchemaIdentity identity_;
  bool track_evaluated_ = false;      // some schema asks for unevaluatedProperties or unevaluatedItems
  std::deque<Literal> literals_;      // literal id / 2
  std::deque<Expansion> expansions_;  // by literal id
  std::map<std::tuple<const JsonValue*, ScopeId>, LiteralId> schema_literals_;
  std::unordered_map<const JsonValue*, LiteralId> constant_literals_;
  std::map<std::vector<NodeId>, LiteralId> union_literals_;
  std::deque<Node> nodes_;
  std::map<std::vector<LiteralId>, NodeId> node_index_;
  std::vector<Scope> scopes_;
  std::map<std::pair<ScopeId, int>, ScopeId> entered_;
  std::set<const JsonValue*> noted_;
  int depth_ = 0;        // in-place nesting of expansions
  int probe_depth_ = 0;  // nesting of surely_empty
  std::size_t work_ = 0;
};

}  // namespace deepinfer::schema
