// Writes normal forms as a grammar (grammar/ir.h). Scalars of a node are one lexeme; an array or object
// branch is one loop whose state says which names were seen, how many elements there are, which `contains`
// hold.
//
// Two passes. Planning follows every reachable node and settles what its members and elements can be; then
// nodes that can never be finished are found (a required member that needs itself) and left out, so that no
// mask leads into a dead end; writing turns what remains into symbols. Members are written with their key: a
// member with a scalar value is a single lexeme. One compilation owns one writer; not thread-safe; no
// recursion on the depth of the schema.
#pragma once

#include <deque>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "grammar/ir.h"
#include "grammar/schema/normaliser.h"

namespace deepinfer::schema {

class GrammarWriter {
 public:
  GrammarWriter(Normaliser& normaliser, grammar::GrammarBuilder& builder);

  /// The symbol of a whole JSON text that is a value of `root`. kUnsupported when nothing is.
  Result<grammar::Symbol> write(NodeId root);

 private:
  using Symbol = grammar::Symbol;
  using RegexId = grammar::RegexId;

  /// One way to write a member: this key, this value. `name` is the index of the named property or -1.
  struct Member {
    RegexId key = 0;  // with its quotes
    NodeId value = kAnyNode;
    int name = -1;
    std::vector<int> satisfies;  // indices of the branch's `exists`
  };
  struct ObjectPlan {
    std::vector<Member> members;
    std::vector<bool> required;              // by name
    std::vector<std::vector<int>> eligible;  // by exists: names that can satisfy it
    std::vector<bool> open_exists;           // by exists: an unnamed key can satisfy it
    std::int64_t min_properties = 0, max_properties = kNoLimit;
  };
  /// One way to write the element at `index`, or any from `index` on when it is the last index.
  struct Element {
    std::int64_t index = 0;
    bool onwards = false;
    NodeId value = kAnyNode;
    std::vector<int> counts;  // indices of the branch's `contains` that it counts for
  };
  struct ArrayPlan {
    std::vector<Element> elements;
    std::vector<ArrayBranch::Contains> contains;
    std::int64_t min_items = 0, max_items = kNoLimit;
    std::vector<RegexId> domain;  // uniqueItems: the values, each once
    bool plain = false;           // one kind of element, no counting
  };
  struct Plan {
    NodeId node = kNeverNode;
    RegexId scalars = grammar::kEmptyRegex;
    std::vector<ObjectPlan> objects;
    std::vector<ArrayPlan> arrays;
    bool productive = false;
    bool symbol_made = false;
    Symbol symbol;
  };

  // plan.cc
  Status plan_all(NodeId root);
  Status plan_scalars(const Form& form, Plan& plan);
  Result<ObjectPlan> plan_object(const ObjectBranch& branch);
  Status plan_unnamed(const ObjectBranch& branch, ObjectPlan& plan);
  Status add_members(const ObjectBranch& branch, ObjectPlan& plan, RegexId key, NodeId value, int name,
                     const std::vector<int>& eligible);
  Result<ArrayPlan> plan_array(const ArrayBranch& branch, NodeId node);
  Status add_elements(const ArrayBranch& branch, ArrayPlan& plan, std::int64_t index, bool onwards,
                      NodeId value);
  bool finite_domain(NodeId node, std::vector<RegexId>& values);
  std::size_t plan_of(NodeId node);
  void find_productive();
  bool can_finish(const ObjectPlan& plan);
  bool can_finish(const ArrayPlan& plan);
  bool usable(NodeId node);

  // grammar_writer.cc
  Symbol symbol_of(NodeId node);
  void write_node(std::size_t plan);
  Symbol write_object(const ObjectPlan& plan);
  Symbol write_array(const ArrayPlan& plan);
  Symbol member_symbol(const Member& member);
  void write_element(const ArrayPlan& plan, const Element& element, grammar::Loop& loop);
  Symbol enclosed(RegexId open, Symbol inside, bool may_be_empty, RegexId close);
  bool write_ordered(const ObjectPlan& plan, grammar::Loop& loop);
  void write_free(const ObjectPlan& plan, grammar::Loop& loop);
  RegexId quoted(RegexId body);

  Normaliser& normaliser_;
  grammar::GrammarBuilder& builder_;
  grammar::RegexPool& pool_;
  const SchemaOptions& options_;
  RegexId gap_ = 0, colon_ = 0, comma_ = 0,
          outer_ = 0;  // white space after a bracket, ':' and ',' with theirs, around
  std::deque<Plan> plans_;
  std::unordered_map<NodeId, std::size_t> plan_index_;
  std::vector<std::size_t> unwritten_;
};

}  // namespace deepinfer::schema
