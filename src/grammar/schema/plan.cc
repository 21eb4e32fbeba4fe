// What members and elements of a branch can be, before anything is written.
#include <algorithm>

#include "grammar/schema/grammar_writer.h"
#include "grammar/schema/number_language.h"

namespace deepinfer::schema {
namespace {

constexpr std::size_t kMaxRegions = 256;     // kinds of unnamed keys one object may tell apart
constexpr std::size_t kMaxExists = 4;        // constraints of "some member is ..." at once
constexpr std::size_t kMaxDomain = 256;      // values a uniqueItems array may choose from
constexpr std::uint32_t kRegionFuel = 4000;  // states one emptiness test of a key region may visit

}  // namespace

std::size_t GrammarWriter::plan_of(NodeId node) {
  const auto [at, fresh] = plan_index_.try_emplace(node, plans_.size());
  if (fresh) {
    plans_.emplace_back();
    plans_.back().node = node;
  }
  return at->second;
}

Status GrammarWriter::plan_all(NodeId root) {
  plan_of(root);
  for (std::size_t i = 0; i < plans_.size(); ++i) {
    auto found = normaliser_.form(plans_[i].node);
    if (!found.ok()) {
      Error error = found.error();
      if (error.where.empty()) error.where = normaliser_.describe(plans_[i].node);
      return error;
    }
    const Form& form = **found;
    DI_TRY(plan_scalars(form, plans_[i]));
    for (const ObjectBranch& branch : form.objects) {
      auto plan = plan_object(branch);
      if (!plan.ok()) {
        return plan.error().where.empty() ? plan.error().at(normaliser_.describe(plans_[i].node))
                                          : plan.error();
      }
      for (const Member& m : plan->members) plan_of(m.value);
      plans_[i].objects.push_back(std::move(*plan));
    }
    for (const ArrayBranch& branch : form.arrays) {
      auto plan = plan_array(branch, plans_[i].node);
      if (!plan.ok()) {
        return plan.error().where.empty() ? plan.error().at(normaliser_.describe(plans_[i].node))
                                          : plan.error();
      }
      for (const Element& e : plan->elements) plan_of(e.value);
      plans_[i].arrays.push_back(std::move(*plan));
    }
    if (pool_.exceeded())
      return Error{ErrorCode::kDeadline, "the schema's patterns and names are too large together", {}};
  }
  return {};
}

Status GrammarWriter::plan_scalars(const Form& form, Plan& plan) {
  std::vector<RegexId> choices;
  if (form.null) choices.push_back(pool_.literal("null"));
  if (form.truth) choices.push_back(pool_.literal("true"));
  if (form.falsity) choices.push_back(pool_.literal("false"));
  for (const NumberBranch& branch : form.numbers) {
    auto language = number_language(pool_, branch, options_);
    if (!language.ok()) {
      DI_TRY(normaliser_.refuse_in(plan.node, "multipleOf", language.error().message));
      NumberBranch loose = branch;
      loose.multiples.clear();
      loose.non_multiples.clear();
      language = number_language(pool_, loose, options_);
      if (!language.ok()) return language.error();
    }
    choices.push_back(*language);
  }
  for (const StringBranch& branch : form.strings)
    choices.push_back(quoted(normaliser_.strings().body(branch)));
  plan.scalars = pool_.alt(choices);
  return {};
}

// One member per combination of the `exists` it may satisfy, none of them included.
Status GrammarWriter::add_members(const ObjectBranch& branch, ObjectPlan& plan, RegexId key, NodeId value,
                                  int name, const std::vector<int>& eligible) {
  for (std::size_t chosen = 0; chosen < (std::size_t{1} << eligible.size()); ++chosen) {
    Member member{key, value, name, {}};
    for (std::size_t i = 0; i < eligible.size(); ++i) {
      if ((chosen >> i & 1) == 0) continue;
      const int e = eligible[i];
      DI_ASSIGN(member.value,
                normaliser_.both(member.value, branch.exists[static_cast<std::size_t>(e)].value));
      member.satisfies.push_back(e);
    }
    if (member.value != kNeverNode) plan.members.push_back(std::move(member));
  }
  return {};
}

Result<GrammarWriter::ObjectPlan> GrammarWriter::plan_object(const ObjectBranch& branch) {
  ObjectPlan plan;
  plan.min_properties = branch.min_properties;
  plan.max_properties = branch.max_properties;
  if (branch.exists.size() > kMaxExists) {
    return unsupported("asks for more than " + std::to_string(kMaxExists) + " different members at once");
  }
  plan.eligible.resize(branch.exists.size());
  plan.open_exists.resize(branch.exists.size());
  for (std::size_t i = 0; i < branch.properties.size(); ++i) {
    const ObjectBranch::Property& p = branch.properties[i];
    plan.required.push_back(p.required);
    if (p.value == kNeverNode) continue;
    std::vector<int> eligible;
    for (std::size_t e = 0; e < branch.exists.size(); ++e) {
      if (!normaliser_.contains(branch.exists[e].keys, p.name)) continue;
      eligible.push_back(static_cast<int>(e));
      plan.eligible[e].push_back(static_cast<int>(i));
    }
    const RegexId key = pool_.literal("\"" + StringAlgebra::spell(p.name) + "\"");
    DI_TRY(add_members(branch, plan, key, p.value, static_cast<int>(i), eligible));
  }
  DI_TRY(plan_unnamed(branch, plan));
  return plan;
}

Status GrammarWriter::plan_unnamed(const ObjectBranch& branch, ObjectPlan& plan) {
  StringAlgebra& strings = normaliser_.strings();
  NodeId base = kAnyNode;
  // What tells unnamed keys apart: the keys of each rule and of each `exists`.
  struct Split {
    LanguageId keys;
    NodeId value;
    int exists;
  };
  std::vector<Split> splits;
  for (const ObjectBranch::Rule& rule : branch.rules) {
    if (rule.keys.unconstrained()) {
      DI_ASSIGN(base, normaliser_.both(base, rule.value));
    } else {
      splits.push_back({strings.language(rule.keys), rule.value, -1});
    }
  }
  if (base == kNeverNode) return {};
  std::vector<int> everywhere;  // `exists` that any key can satisfy
  for (std::size_t e = 0; e < branch.exists.size(); ++e) {
    if (branch.exists[e].keys.unconstrained())
      everywhere.push_back(static_cast<int>(e));
    else
      splits.push_back({strings.language(branch.exists[e].keys), kAnyNode, static_cast<int>(e)});
  }
  std::vector<RegexId> names;
  for (const ObjectBranch::Property& p : branch.properties)
    names.push_back(pool_.literal(StringAlgebra::spell(p.name)));
  if (names.empty() && splits.empty()) {
    for (const int e : everywhere) plan.open_exists[static_cast<std::size_t>(e)] = true;
    return add_members(branch, plan, quoted(strings.body(StringBranch{})), base, -1, everywhere);
  }
  struct Region {
    RegexId keys;
    NodeId value;
    std::vector<int> eligible;
  };
  std::vector<Region> regions{{pool_.minus(strings.plain_any(), pool_.alt(names)), base, everywhere}};
  for (const Split& split : splits) {
    std::vector<Region> finer;
    for (const Region& region : regions) {
      for (const bool inside : {true, false}) {
        Region part = region;
        part.keys = inside ? pool_.all_of({region.keys, split.keys}) : pool_.minus(region.keys, split.keys);
        if (inside) {
          DI_ASSIGN(part.value, normaliser_.both(region.value, split.value));
          if (split.exists >= 0) part.eligible.push_back(split.exists);
        }
        if (part.value == kNeverNode) continue;
        const auto empty = pool_.is_empty(part.keys, kRegionFuel);
        if (empty.ok() && *empty) continue;
        finer.push_back(std::move(part));
      }
    }
    if (finer.size() > kMaxRegions) {
      return unsupported("patterns of member names overlap in more than " + std::to_string(kMaxRegions) +
                         " ways");
    }
    regions = std::move(finer);
  }
  for (const Region& region : regions) {
    for (const int e : region.eligible) plan.open_exists[static_cast<std::size_t>(e)] = true;
    DI_TRY(add_members(branch, plan, quoted(region.keys), region.value, -1, region.eligible));
  }
  return {};
}

// One element per combination of the `contains` it may count for. Where a maximum is set, an element that is
// not counted must not match.
Status GrammarWriter::add_elements(const ArrayBranch& branch, ArrayPlan& plan, std::int64_t index,
                                   bool onwards, NodeId value) {
  std::vector<int> eligible;
  for (std::size_t c = 0; c < branch.contains.size(); ++c) {
    if (index >= branch.contains[c].from) eligible.push_back(static_cast<int>(c));
  }
  if (eligible.size() > kMaxExists) {
    return unsupported("asks for more than " + std::to_string(kMaxExists) + " different elements at once");
  }
  for (std::size_t chosen = 0; chosen < (std::size_t{1} << eligible.size()); ++chosen) {
    Element element{index, onwards, value, {}};
    const bool forbidden = std::any_of(eligible.begin(), eligible.end(), [&, i = 0](int c) mutable {
      return (chosen >> i++ & 1) != 0 && branch.contains[static_cast<std::size_t>(c)].max_count == 0;
    });
    if (forbidden) continue;
    for (std::size_t i = 0; i < eligible.size(); ++i) {
      const ArrayBranch::Contains& c = branch.contains[static_cast<std::size_t>(eligible[i])];
      NodeId item = c.item;
      if ((chosen >> i & 1) != 0) {
        element.counts.push_back(eligible[i]);
      } else {
        if (c.max_count == kNoLimit) continue;
        DI_ASSIGN(item, normaliser_.negate(c.item));
      }
      DI_ASSIGN(element.value, normaliser_.both(element.value, item));
    }
    if (element.value != kNeverNode) plan.elements.push_back(std::move(element));
  }
  return {};
}

bool GrammarWriter::finite_domain(NodeId node, std::vector<RegexId>& values) {
  const auto found = normaliser_.form(node);
  if (!found.ok()) return false;
  const Form& form = **found;
  if (!form.arrays.empty() || !form.objects.empty()) return false;
  if (form.null) values.push_back(pool_.literal("null"));
  if (form.truth) values.push_back(pool_.literal("true"));
  if (form.falsity) values.push_back(pool_.literal("false"));
  for (const NumberBranch& branch : form.numbers) {
    if (!branch.low || !branch.high || compare(*branch.low, *branch.high) != 0) return false;
    const auto language = number_language(pool_, branch, options_);
    if (!language.ok()) return false;
    values.push_back(*language);
  }
  for (const StringBranch& branch : form.strings) {
    if (!branch.one_of) return false;
    for (const std::string& text : *branch.one_of)
      values.push_back(quoted(pool_.literal(StringAlgebra::spell(text))));
  }
  return values.size() <= kMaxDomain;
}

Result<GrammarWriter::ArrayPlan> GrammarWriter::plan_array(const ArrayBranch& branch, NodeId node) {
  ArrayPlan plan;
  plan.contains = branch.contains;
  plan.min_items = branch.min_items;
  plan.max_items = branch.max_items;
  if (branch.unique) {
    std::vector<RegexId> domain;
    if (branch.prefix.empty() && branch.contains.empty() && finite_domain(branch.rest, domain)) {
      // Equal values written by several branches are one value.
      std::sort(domain.begin(), domain.end());
      domain.erase(std::unique(domain.begin(), domain.end()), domain.end());
      plan.domain = std::move(domain);
      plan.max_items = std::min(plan.max_items, static_cast<std::int64_t>(plan.domain.size()));
      return plan;
    }
    DI_TRY(normaliser_.refuse_in(node, "uniqueItems",
                                 "only elements out of a finite list of values can be kept distinct"));
  }
  const auto prefix = static_cast<std::int64_t>(branch.prefix.size());
  for (std::int64_t i = 0; i < prefix; ++i)
    DI_TRY(add_elements(branch, plan, i, false, element_at(branch, i)));
  // Elements between the prefix and where the last `contains` begins to count differ from those behind.
  std::int64_t steady = prefix;
  for (const ArrayBranch::Contains& c : branch.contains) steady = std::max(steady, c.from);
  for (std::int64_t i = prefix; i < steady; ++i) DI_TRY(add_elements(branch, plan, i, false, branch.rest));
  if (branch.rest != kNeverNode) DI_TRY(add_elements(branch, plan, steady, true, branch.rest));
  plan.plain = steady == 0 && plan.elements.size() == 1 && branch.contains.empty();
  return plan;
}

bool GrammarWriter::usable(NodeId node) {
  if (node == kNeverNode) return false;
  const Plan& plan = plans_[plan_index_.at(node)];
  return plan.productive;
}

bool GrammarWriter::can_finish(const ObjectPlan& plan) {
  std::vector<bool> have(plan.required.size());
  std::vector<bool> satisfied(plan.eligible.size());
  for (const Member& m : plan.members) {
    if (!usable(m.value)) continue;
    if (m.name >= 0) have[static_cast<std::size_t>(m.name)] = true;
    for (const int e : m.satisfies) satisfied[static_cast<std::size_t>(e)] = true;
  }
  for (std::size_t i = 0; i < have.size(); ++i) {
    if (plan.required[i] && !have[i]) return false;
  }
  if (std::find(satisfied.begin(), satisfied.end(), false) != satisfied.end()) return false;
  const bool open = std::any_of(plan.members.begin(), plan.members.end(),
                                [&](const Member& m) { return m.name < 0 && usable(m.value); });
  return open || std::count(have.begin(), have.end(), true) >= plan.min_properties;
}

bool GrammarWriter::can_finish(const ArrayPlan& plan) {
  if (plan.min_items > plan.max_items) return false;
  if (!plan.domain.empty()) return true;
  std::vector<bool> counted(plan.contains.size());
  std::int64_t reach = 0;  // indices below have a usable element
  for (const Element& e : plan.elements) {
    if (!usable(e.value)) continue;
    for (const int c : e.counts) counted[static_cast<std::size_t>(c)] = true;
    if (e.index <= reach) reach = std::max(reach, e.onwards ? kNoLimit : e.index + 1);
  }
  for (std::size_t c = 0; c < counted.size(); ++c) {
    if (plan.contains[c].min_count > 0 && !counted[c]) return false;
  }
  return reach >= plan.min_items;
}

void GrammarWriter::find_productive() {
  bool changed = true;
  while (changed) {
    changed = false;
    // Children were planned after their parents, so the last come first.
    for (std::size_t i = plans_.size(); i-- > 0;) {
      Plan& plan = plans_[i];
      if (plan.productive) continue;
      plan.productive =
          plan.scalars != grammar::kEmptyRegex ||
          std::any_of(plan.objects.begin(), plan.objects.end(),
                      [&](const auto& o) { return can_finish(o); }) ||
          std::any_of(plan.arrays.begin(), plan.arrays.end(), [&](const auto& a) { return can_finish(a); });
      changed = changed || plan.productive;
    }
  }
}

}  // namespace deepinfer::schema
