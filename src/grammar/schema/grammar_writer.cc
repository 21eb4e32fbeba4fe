#include "grammar/schema/grammar_writer.h"

#include <algorithm>

namespace deepinfer::schema {

using grammar::ByteSet;
using grammar::kUnbounded;
using grammar::Loop;
using grammar::LoopArm;

namespace {

constexpr std::int64_t kMaxTrackedContains =
    16;  // arms an element is split into, one per number already found

std::uint32_t narrow(std::int64_t value) {
  return value >= std::int64_t{kUnbounded} ? kUnbounded : static_cast<std::uint32_t>(value);
}

}  // namespace

GrammarWriter::GrammarWriter(Normaliser& normaliser, grammar::GrammarBuilder& builder)
    : normaliser_(normaliser), builder_(builder), pool_(builder.regex()), options_(normaliser.options()) {
  const RegexId blank = pool_.byte(' ');
  switch (options_.whitespace) {
    case Whitespace::kCompact:
      gap_ = outer_ = grammar::kEpsilonRegex;
      colon_ = pool_.byte(':');
      comma_ = pool_.byte(',');
      break;
    case Whitespace::kBounded: {
      const RegexId indent = pool_.repeat(pool_.bytes(ByteSet::any_of(" \t")), 0,
                                          static_cast<std::uint32_t>(std::max(options_.max_indent, 0)));
      gap_ = pool_.optional(pool_.alt({blank, pool_.concat(pool_.byte('\n'), indent)}));
      outer_ = grammar::kEpsilonRegex;
      colon_ = pool_.concat(pool_.byte(':'), pool_.optional(blank));
      comma_ = pool_.concat(pool_.byte(','), gap_);
      break;
    }
    case Whitespace::kAny:
      gap_ = outer_ = pool_.star(pool_.bytes(ByteSet::any_of(" \t\n\r")));
      colon_ = pool_.concat({gap_, pool_.byte(':'), gap_});
      comma_ = pool_.concat({gap_, pool_.byte(','), gap_});
      break;
  }
}

grammar::RegexId GrammarWriter::quoted(RegexId body) {
  return pool_.concat({pool_.byte('"'), body, pool_.byte('"')});
}

Result<grammar::Symbol> GrammarWriter::write(NodeId root) {
  DI_TRY(plan_all(root));
  find_productive();
  if (!plans_.front().productive) {
    return invalid_argument("no JSON value satisfies the schema", normaliser_.describe(root));
  }
  Symbol start = symbol_of(root);
  while (!unwritten_.empty()) {
    const std::size_t next = unwritten_.back();
    unwritten_.pop_back();
    write_node(next);
    if (builder_.error()) return *builder_.error();
  }
  if (outer_ != grammar::kEpsilonRegex) {
    start = builder_.sequence({builder_.lexeme(outer_), start, builder_.lexeme(outer_)});
  }
  return start;
}

grammar::Symbol GrammarWriter::symbol_of(NodeId node) {
  const std::size_t index = plan_index_.at(node);
  Plan& plan = plans_[index];
  if (plan.symbol_made) return plan.symbol;
  plan.symbol_made = true;
  if (!plan.productive) {
    plan.symbol = builder_.never();
  } else if (plan.objects.empty() && plan.arrays.empty()) {
    plan.symbol = builder_.lexeme(plan.scalars);
  } else {
    plan.symbol = builder_.nonterminal();
    unwritten_.push_back(index);
  }
  return plan.symbol;
}

void GrammarWriter::write_node(std::size_t index) {
  const Symbol self = plans_[index].symbol;
  if (plans_[index].scalars != grammar::kEmptyRegex) {
    builder_.add_production(self, {builder_.lexeme(plans_[index].scalars)});
  }
  for (const ObjectPlan& object : plans_[index].objects) {
    if (can_finish(object)) builder_.add_production(self, {write_object(object)});
  }
  for (const ArrayPlan& array : plans_[index].arrays) {
    if (can_finish(array)) builder_.add_production(self, {write_array(array)});
  }
}

grammar::Symbol GrammarWriter::enclosed(RegexId open, Symbol inside, bool may_be_empty, RegexId close) {
  const Symbol filled = builder_.sequence(
      {builder_.lexeme(pool_.concat(open, gap_)), inside, builder_.lexeme(pool_.concat(gap_, close))});
  if (!may_be_empty) return filled;
  return builder_.alternatives({builder_.lexeme(pool_.concat({open, gap_, close})), filled});
}

grammar::Symbol GrammarWriter::member_symbol(const Member& member) {
  const RegexId head = pool_.concat(member.key, colon_);
  const Plan& value = plans_[plan_index_.at(member.value)];
  if (value.objects.empty() && value.arrays.empty())
    return builder_.lexeme(pool_.concat(head, value.scalars));
  return builder_.sequence({builder_.lexeme(head), symbol_of(member.value)});
}

// Named members in order, unnamed ones behind: the loop state is the next name that may come. False when
// constraints need a memory of which members came.
bool GrammarWriter::write_ordered(const ObjectPlan& plan, Loop& loop) {
  const auto names = static_cast<std::uint32_t>(plan.required.size());
  const std::int64_t required = std::count(plan.required.begin(), plan.required.end(), true);
  const bool bounded =
      plan.min_properties > required || plan.max_properties < static_cast<std::int64_t>(names);
  const bool open =
      std::any_of(plan.members.begin(), plan.members.end(), [](const Member& m) { return m.name < 0; });
  if (!plan.eligible.empty() || bounded || (open && plan.max_properties != kNoLimit)) return false;
  std::vector<std::uint32_t> earliest(names + 1, 0);  // the least position from which name k may be written
  for (std::uint32_t k = 0; k < names; ++k) earliest[k + 1] = plan.required[k] ? k + 1 : earliest[k];
  for (const Member& m : plan.members) {
    if (!usable(m.value)) continue;
    const std::uint32_t k = m.name < 0 ? names : static_cast<std::uint32_t>(m.name);
    LoopArm arm;
    arm.body = member_symbol(m);
    arm.guard.counters.push_back({0, earliest[k], k});
    arm.update.assign.push_back({0, m.name < 0 ? names : k + 1});
    loop.arms.push_back(std::move(arm));
  }
  loop.counter_caps.push_back(names);
  if (earliest[names] > 0) loop.exit.counters.push_back({0, earliest[names], kUnbounded});
  return true;
}

// Any order: a bit for each name that came, and one for each `exists` that is satisfied; a counter for the
// members that are not required, so that required ones always keep their room.
void GrammarWriter::write_free(const ObjectPlan& plan, Loop& loop) {
  const auto names = static_cast<std::uint32_t>(plan.required.size());
  loop.bit_count = names + static_cast<std::uint32_t>(plan.eligible.size());
  std::int64_t required = 0;
  for (std::uint32_t k = 0; k < names; ++k) {
    if (!plan.required[k]) continue;
    loop.exit.bits_set.push_back(k);
    ++required;
  }
  for (std::uint32_t e = 0; e < plan.eligible.size(); ++e) loop.exit.bits_set.push_back(names + e);
  const std::int64_t least = std::max<std::int64_t>(plan.min_properties - required, 0);
  const std::int64_t most = plan.max_properties == kNoLimit ? kNoLimit : plan.max_properties - required;
  const bool counted = least > 0 || most != kNoLimit;
  if (counted) {
    loop.counter_caps.push_back(narrow(std::max(least, most == kNoLimit ? 0 : most)));
    if (least > 0) loop.exit.counters.push_back({0, narrow(least), kUnbounded});
  }
  for (const Member& m : plan.members) {
    if (!usable(m.value)) continue;
    const bool optional = m.name < 0 || !plan.required[static_cast<std::size_t>(m.name)];
    if (optional && most == 0) continue;
    LoopArm arm;
    arm.body = member_symbol(m);
    if (m.name >= 0) {
      arm.guard.bits_clear.push_back(static_cast<std::uint32_t>(m.name));
      arm.update.set_bits.push_back(static_cast<std::uint32_t>(m.name));
      // Do not use up the last member that could still satisfy an `exists`.
      for (std::uint32_t e = 0; e < plan.eligible.size(); ++e) {
        const auto& able = plan.eligible[e];
        const bool satisfies =
            std::find(m.satisfies.begin(), m.satisfies.end(), static_cast<int>(e)) != m.satisfies.end();
        if (satisfies || plan.open_exists[e] || std::find(able.begin(), able.end(), m.name) == able.end())
          continue;
        std::vector<grammar::BitLiteral> clause{{names + e, true}};
        for (const int other : able) {
          if (other != m.name) clause.push_back({static_cast<std::uint32_t>(other), false});
        }
        arm.guard.clauses.push_back(std::move(clause));
      }
    }
    for (const int e : m.satisfies) arm.update.set_bits.push_back(names + static_cast<std::uint32_t>(e));
    if (optional && counted) {
      if (most != kNoLimit) arm.guard.counters.push_back({0, 0, narrow(most - 1)});
      arm.update.add.push_back({0, 1});
    }
    loop.arms.push_back(std::move(arm));
  }
}

grammar::Symbol GrammarWriter::write_object(const ObjectPlan& plan) {
  const RegexId open = pool_.byte('{'), close = pool_.byte('}');
  Loop loop;
  loop.separator = builder_.lexeme(comma_);
  if (options_.order != PropertyOrder::kAsWritten || !write_ordered(plan, loop)) {
    loop = Loop{};
    loop.separator = builder_.lexeme(comma_);
    write_free(plan, loop);
  }
  const bool may_be_empty = loop.exit.bits_set.empty() && loop.exit.counters.empty();
  if (loop.arms.empty()) return builder_.lexeme(pool_.concat({open, gap_, close}));
  if (may_be_empty) {
    // The empty object is written apart, so that its white space is not counted twice.
    const auto any = static_cast<std::uint32_t>(loop.counter_caps.size());
    loop.counter_caps.push_back(1);
    for (LoopArm& arm : loop.arms) arm.update.add.push_back({any, 1});
    loop.exit.counters.push_back({any, 1, kUnbounded});
  }
  return enclosed(open, builder_.loop(std::move(loop)), may_be_empty, close);
}

// An arm for one kind of element. In an array of bounded length an element that does not count for a
// `contains` must leave room for those still missing, so there is one arm for each number already found.
void GrammarWriter::write_element(const ArrayPlan& plan, const Element& element, Loop& loop) {
  LoopArm arm;
  arm.body = symbol_of(element.value);
  const bool bounded = plan.max_items != kNoLimit;
  const std::int64_t last = !element.onwards ? element.index : bounded ? plan.max_items - 1 : kNoLimit;
  arm.update.add.push_back({0, 1});
  for (const int c : element.counts) {
    const ArrayBranch::Contains& contains = plan.contains[static_cast<std::size_t>(c)];
    const auto counter = static_cast<std::uint32_t>(c) + 1;
    if (contains.max_count != kNoLimit)
      arm.guard.counters.push_back({counter, 0, narrow(contains.max_count - 1)});
    arm.update.add.push_back({counter, 1});
  }
  const bool counts = !element.counts.empty();
  const std::int64_t wanted = plan.contains.size() == 1 ? plan.contains[0].min_count : 0;
  if (counts || !bounded || wanted == 0 || wanted > kMaxTrackedContains) {
    arm.guard.counters.push_back({0, narrow(element.index), narrow(last)});
    loop.arms.push_back(std::move(arm));
    return;
  }
  for (std::int64_t have = 0; have <= wanted; ++have) {
    const std::int64_t latest = std::min(last, plan.max_items - 1 - (wanted - have));
    if (latest < element.index) continue;
    LoopArm one = arm;
    one.guard.counters.push_back({0, narrow(element.index), narrow(latest)});
    one.guard.counters.push_back({1, narrow(have), have == wanted ? kUnbounded : narrow(have)});
    loop.arms.push_back(std::move(one));
  }
}

grammar::Symbol GrammarWriter::write_array(const ArrayPlan& plan) {
  const RegexId open = pool_.byte('['), close = pool_.byte(']');
  const RegexId none = pool_.concat({open, gap_, close});
  const bool may_be_empty =
      plan.min_items == 0 &&
      std::all_of(plan.contains.begin(), plan.contains.end(), [](const auto& c) { return c.min_count == 0; });
  const Symbol separator = builder_.lexeme(comma_);
  const std::int64_t least = std::max<std::int64_t>(plan.min_items, 1);
  if (plan.max_items == 0) return builder_.lexeme(none);
  if (plan.plain) {
    if (!usable(plan.elements[0].value)) return builder_.lexeme(none);
    const Symbol item = symbol_of(plan.elements[0].value);
    return enclosed(open, builder_.repeat(item, narrow(least), narrow(plan.max_items), separator),
                    may_be_empty, close);
  }
  Loop loop;
  loop.separator = separator;
  if (!plan.domain.empty()) {
    loop.bit_count = static_cast<std::uint32_t>(plan.domain.size());
    loop.counter_caps.push_back(
        narrow(std::min(plan.max_items, static_cast<std::int64_t>(plan.domain.size()))));
    for (std::uint32_t v = 0; v < plan.domain.size(); ++v) {
      LoopArm arm;
      arm.body = builder_.lexeme(plan.domain[v]);
      arm.guard.bits_clear.push_back(v);
      arm.guard.counters.push_back({0, 0, narrow(plan.max_items - 1)});
      arm.update.set_bits.push_back(v);
      arm.update.add.push_back({0, 1});
      loop.arms.push_back(std::move(arm));
    }
    loop.exit.counters.push_back({0, narrow(least), kUnbounded});
    return enclosed(open, builder_.loop(std::move(loop)), may_be_empty, close);
  }
  // Counter 0: elements so far; counter 1 + c: elements that count for contains[c].
  std::int64_t cap = least;
  for (const Element& e : plan.elements) cap = std::max(cap, e.onwards ? e.index : e.index + 1);
  if (plan.max_items != kNoLimit) cap = std::max(cap, plan.max_items);
  loop.counter_caps.push_back(narrow(cap));
  for (const ArrayBranch::Contains& c : plan.contains) {
    loop.counter_caps.push_back(narrow(c.max_count == kNoLimit ? c.min_count : c.max_count));
  }
  for (const Element& e : plan.elements) {
    if (usable(e.value) && e.index < plan.max_items) write_element(plan, e, loop);
  }
  loop.exit.counters.push_back({0, narrow(least), kUnbounded});
  for (std::uint32_t c = 0; c < plan.contains.size(); ++c) {
    if (plan.contains[c].min_count > 0) {
      loop.exit.counters.push_back({c + 1, narrow(plan.contains[c].min_count), kUnbounded});
    }
  }
  if (loop.arms.empty()) return builder_.lexeme(none);
  return enclosed(open, builder_.loop(std::move(loop)), may_be_empty, close);
}

}  // namespace deepinfer::schema
