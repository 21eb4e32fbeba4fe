// The normal form of a schema: for each JSON type, a union of branches, each branch a conjunction of plain
// constraints. Instances have exactly one type, so the types never multiply each other; `anyOf` is a union of
// forms, `allOf` an intersection, and `not` a form again. Values inside arrays and objects are named by
// NodeId (node_table.h) and normalised only when they are asked for, which is what makes recursive schemas
// finite. Values; no thread rule. Cost of an intersection: the product of the branch counts, bounded by
// kMaxBranches.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "grammar/regex_pool.h"
#include "grammar/schema/decimal.h"

namespace deepinfer::schema {

/// A conjunction of schemas, named (see NodeTable).
using NodeId = std::int32_t;
inline constexpr NodeId kAnyNode = 0;    // every value
inline constexpr NodeId kNeverNode = 1;  // no value

/// A set of strings as the regular expression of their plain JSON spelling (see StringAlgebra).
using LanguageId = grammar::RegexId;

inline constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
/// Branches one form may have before the schema is refused as too entangled.
inline constexpr std::size_t kMaxBranches = 256;

struct NumberBranch {
  enum class Integral : std::uint8_t { kEither, kInteger, kFraction };
  Integral integral = Integral::kEither;
  bool plain = false;  // integers without fraction and exponent, which is what draft 4 calls an integer
  std::optional<Decimal> low, high;
  bool low_open = false, high_open = false;  // the bound itself is excluded
  std::vector<Decimal> multiples;            // a multiple of each
  std::vector<Decimal> non_multiples;        // a multiple of none
  std::vector<Decimal> excluded;             // none of these values
};

/// Strings with min_length..max_length code points, in every language of `languages`, among `one_of` when
/// given, and not in `none_of`.
struct StringBranch {
  std::int64_t min_length = 0, max_length = kNoLimit;
  std::vector<LanguageId> languages;  // sorted, unique
  std::optional<std::set<std::string>> one_of;
  std::set<std::string> none_of;

  bool unconstrained() const {
    return min_length == 0 && max_length == kNoLimit && languages.empty() && !one_of && none_of.empty();
  }
  bool operator==(const StringBranch&) const = default;
};

struct ArrayBranch {
  std::vector<NodeId> prefix;
  NodeId rest = kAnyNode;
  std::int64_t min_items = 0, max_items = kNoLimit;
  /// At least min_count and at most max_count of the elements from index `from` on are `item`.
  struct Contains {
    NodeId item = kAnyNode;
    std::int64_t min_count = 1, max_count = kNoLimit;
    std::int64_t from = 0;
    bool operator==(const Contains&) const = default;
  };
  std::vector<Contains> contains;
  bool unique = false;

  // What in-place applicators have evaluated, for unevaluatedItems; empty when nobody asks.
  bool evaluated_all = false;
  std::int64_t evaluated_prefix = 0;
  std::vector<NodeId> evaluated_contains;
};

struct ObjectBranch {
  struct Property {
    std::string name;
    NodeId value = kAnyNode;  // kNeverNode: the name may not appear
    bool required = false;
    bool evaluated = false;
  };
  /// Every member whose key is in `keys` and is not named in `properties` has this value.
  struct Rule {
    StringBranch keys;
    NodeId value = kAnyNode;
  };
  /// At least one member, named or not, has a key in `keys` and this value.
  struct Exists {
    StringBranch keys;
    NodeId value = kAnyNode;
  };

  std::vector<Property> properties;  // in the order in which the schema names them
  std::vector<Rule> rules;
  std::vector<Exists> exists;
  std::int64_t min_properties = 0, max_properties = kNoLimit;

  bool evaluated_all = false;
  std::vector<LanguageId> evaluated_keys;

  Property* find(std::string_view name);
  const Property* find(std::string_view name) const;
};

struct Form {
  bool null = false, falsity = false, truth = false;
  std::vector<NumberBranch> numbers;
  std::vector<StringBranch> strings;
  std::vector<ArrayBranch> arrays;
  std::vector<ObjectBranch> objects;

  static Form any();
  static Form never() { return {}; }
  bool is_never() const {
    return !null && !falsity && !truth && numbers.empty() && strings.empty() && arrays.empty() &&
           objects.empty();
  }
};

/// What form operations need to know about values below and about string languages.
class FormContext {
 public:
  virtual ~FormContext() = default;
  /// The conjunction of two nodes.
  virtual Result<NodeId> both(NodeId a, NodeId b) = 0;
  /// Whether every value of `a` is surely in `b`; false when unknown. Cheap.
  virtual bool implies(NodeId a, NodeId b) = 0;
  /// Whether a node is known to have no value; false when unknown. May look a few levels down.
  virtual bool surely_empty(NodeId node) = 0;
  /// Whether `text` is a string of the branch.
  virtual bool contains(const StringBranch& branch, const std::string& text) = 0;
  /// Whether the branch surely holds no string; false when unknown.
  virtual bool surely_empty(const StringBranch& branch) = 0;
};

/// Intersection of two forms, impossible branches dropped. kUnsupported beyond kMaxBranches.
Result<Form> intersect(const Form& a, const Form& b, FormContext& context);
/// Whether every value of `a` is surely in `b`, evaluation records included; false when unknown.
bool covered(const ObjectBranch& a, const ObjectBranch& b, FormContext& context);
/// Union. kUnsupported beyond kMaxBranches.
Status unite(Form& into, Form from);

/// Intersections of single branches; empty optional when nothing can satisfy both.
std::optional<NumberBranch> intersect(const NumberBranch& a, const NumberBranch& b);
std::optional<StringBranch> intersect(const StringBranch& a, const StringBranch& b, FormContext& context);
Result<std::optional<ArrayBranch>> intersect(const ArrayBranch& a, const ArrayBranch& b,
                                             FormContext& context);
Result<std::optional<ObjectBranch>> intersect(const ObjectBranch& a, const ObjectBranch& b,
                                              FormContext& context);

/// False when the branch surely holds no value. Applies what follows from the other fields (a required name
/// that may not appear, more prefix elements than max_items).
bool tidy(NumberBranch& branch);
bool tidy(ArrayBranch& branch, FormContext& context);
bool tidy(ObjectBranch& branch, FormContext& context);

/// The element type of index `at`.
inline NodeId element_at(const ArrayBranch& branch, std::int64_t at) {
  return at < static_cast<std::int64_t>(branch.prefix.size()) ? branch.prefix[static_cast<std::size_t>(at)]
                                                              : branch.rest;
}

/// Forgets what was evaluated: annotations do not pass through `not`.
void clear_evaluated(Form& form);

}  // namespace deepinfer::schema
