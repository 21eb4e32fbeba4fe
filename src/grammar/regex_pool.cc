// Derivatives, the lazily built DFA and the decision procedures on it.
#include "grammar/regex_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <unordered_set>

namespace deepinfer::grammar {
namespace {

constexpr std::uint16_t kVisitsBeforeTable = 12;  // a dense table is 1 KiB; literals rarely earn one
constexpr std::uint32_t kLivenessFuel = 50'000;   // states one liveness test may visit

}  // namespace

// The derivative by `byte`; narrows `same_bytes` to bytes with the same derivative. The sets that are
// reported for one node partition the bytes.
RegexId RegexPool::derive(RegexId x, std::uint8_t byte, ByteSet& same_bytes) {
  const Node& n = nodes_[x];
  switch (n.kind) {
    case Kind::kEmpty:
    case Kind::kEpsilon:
      return kEmptyRegex;
    case Kind::kAll:
      return kAllRegex;
    case Kind::kBytes: {
      const ByteSet& set = sets_[n.a];
      if (set.test(byte)) {
        same_bytes &= set;
        return kEpsilonRegex;
      }
      same_bytes &= ~set;
      return kEmptyRegex;
    }
    case Kind::kConcat:
      if (nodes_[n.a].kind == Kind::kBytes) {
        const ByteSet& set = sets_[nodes_[n.a].a];
        if (set.test(byte)) {
          same_bytes &= set;
          return n.b;
        }
        same_bytes &= ~set;
        return kEmptyRegex;
      }
      break;
    default:
      break;
  }
  for (std::uint32_t a = n.arcs; a != 0; a = arcs_[a].next) {
    if (arcs_[a].bytes.test(byte)) {
      same_bytes &= arcs_[a].bytes;
      return arcs_[a].target;
    }
  }
  ByteSet own = ByteSet::all();
  const RegexId target = derive_raw(x, byte, own);
  arcs_.push_back({own, target, nodes_[x].arcs});
  nodes_[x].arcs = static_cast<std::uint32_t>(arcs_.size() - 1);
  same_bytes &= own;
  return target;
}

RegexId RegexPool::derive_raw(RegexId x, std::uint8_t byte, ByteSet& same_bytes) {
  const Node n = nodes_[x];
  switch (n.kind) {
    case Kind::kConcat: {
      // Walks along the sequence while its elements are nullable.
      std::vector<RegexId> parts;
      RegexId rest = x;
      while (true) {
        const Node r = nodes_[rest];
        if (r.kind != Kind::kConcat) {
          parts.push_back(derive(rest, byte, same_bytes));
          break;
        }
        const RegexId head = derive(r.a, byte, same_bytes);
        if (head != kEmptyRegex) parts.push_back(concat(head, r.b));
        if (!nodes_[r.a].nullable) break;
        rest = r.b;
      }
      return alt(parts);
    }
    case Kind::kOr:
    case Kind::kAnd: {
      std::vector<RegexId> parts;
      work_ += n.b;
      parts.reserve(n.b);
      for (std::uint32_t i = 0; i < n.b; ++i) {
        const RegexId part = derive(kids_[n.a + i], byte, same_bytes);
        if (part == kEmptyRegex) {
          if (n.kind == Kind::kAnd) return kEmptyRegex;  // same_bytes keeps this child dead as well
          continue;
        }
        parts.push_back(part);
      }
      return n.kind == Kind::kOr ? alt(parts) : all_of(parts);
    }
    case Kind::kNot:
      return complement(derive(n.a, byte, same_bytes));
    case Kind::kRepeat: {
      const RegexId head = derive(n.a, byte, same_bytes);
      if (head == kEmptyRegex) return kEmptyRegex;
      const std::uint32_t max = n.c == kUnbounded ? kUnbounded : n.c - 1;
      return concat(head, repeat(n.a, n.b == 0 ? 0 : n.b - 1, max));
    }
    case Kind::kShortest:
      return shortest(derive(n.a, byte, same_bytes));
    case Kind::kMultiple: {
      const bool digit = byte >= '0' && byte <= '9';
      const bool point = byte == '.' && (n.c & kAfterPoint) == 0;
      same_bytes &= digit || byte == '.' ? ByteSet::of(byte) : ~(ByteSet::range('0', '9') | ByteSet::of('.'));
      if (point) return decimal_state(n.a, n.b, n.c | kAfterPoint);
      if (!digit) return kEmptyRegex;
      const std::uint32_t value = byte - static_cast<std::uint32_t>('0');
      if (n.c == kAfterPoint) return value == 0 ? x : kEmptyRegex;
      const auto next = static_cast<std::uint32_t>((std::uint64_t{n.b} * 10 + value) % n.a);
      return decimal_state(n.a, next, (n.c & kAfterPoint) != 0 ? n.c - 1 : n.c);
    }
    default:
      return derive(x, byte, same_bytes);
  }
}

RegexId RegexPool::step_slow(RegexId x, std::uint8_t byte) {
  if (x == kEmptyRegex) return kEmptyRegex;
  ByteSet same_bytes = ByteSet::all();
  RegexId next = derive(x, byte, same_bytes);
  if (next != kEmptyRegex && nodes_[next].liveness != 1 && !live(next)) next = kEmptyRegex;
  Node& n = nodes_[x];
  if (n.table == 0 && ++n.visits >= kVisitsBeforeTable) {
    n.table = static_cast<std::uint32_t>(tables_.size() >> 8);
    tables_.resize(tables_.size() + 256, kUnknown);
  }
  if (n.table != 0) {
    RegexId* row = tables_.data() + (static_cast<std::size_t>(n.table) << 8);
    for (int w = 0; w < 4; ++w)
      for (std::uint64_t bits = same_bytes.words[w]; bits != 0; bits &= bits - 1)
        row[w * 64 + __builtin_ctzll(bits)] = next;
  }
  return next;
}

// Breadth-first search for a nullable state or one known to be live: the nearest is usually a few bytes away,
// where a depth-first search would run through every count of a bounded repetition. On success the states on
// the way are live; when the search ends without one, every visited state is empty.
bool RegexPool::live(RegexId x) {
  if (nodes_[x].liveness != 0) return nodes_[x].liveness == 1;
  if (nodes_[x].nullable) {
    nodes_[x].liveness = 1;
    return true;
  }
  std::vector<RegexId> visited{x};
  std::vector<std::uint32_t> parent{0};
  std::unordered_set<RegexId> seen{x};
  for (std::uint32_t at = 0; at < visited.size(); ++at) {
    ByteSet left = ByteSet::all();
    while (!left.empty()) {
      ByteSet same_bytes = ByteSet::all();
      const RegexId next = derive(visited[at], left.first(), same_bytes);
      left &= ~same_bytes;
      Node& n = nodes_[next];
      if (n.liveness == 2) continue;
      if (n.nullable || n.liveness == 1) {
        n.liveness = 1;
        for (std::uint32_t up = at;; up = parent[up]) {
          nodes_[visited[up]].liveness = 1;
          if (up == 0) return true;
        }
      }
      if (!seen.insert(next).second) continue;
      if (visited.size() >= kLivenessFuel || exceeded_) {
        out_of_fuel_ = true;
        return true;
      }
      visited.push_back(next);
      parent.push_back(at);
    }
  }
  for (RegexId v : visited) nodes_[v].liveness = 2;
  return false;
}

const ByteSet& RegexPool::first_bytes(RegexId x) {
  if (nodes_[x].first == 0) {
    ByteSet out;
    ByteSet left = ByteSet::all();
    while (!left.empty()) {
      const std::uint8_t b = left.first();
      ByteSet same_bytes = ByteSet::all();
      const RegexId next = derive(x, b, same_bytes);
      left &= ~same_bytes;
      if (next != kEmptyRegex && live(next)) out |= same_bytes;
    }
    first_sets_.push_back(out);
    nodes_[x].first = static_cast<std::uint32_t>(first_sets_.size() - 1);
  }
  return first_sets_[nodes_[x].first];
}

RegexPool::Successors RegexPool::successors(RegexId x, std::uint32_t kind, const ByteSet& bytes) {
  const std::uint64_t key = (std::uint64_t{x} << 8) | kind;
  if (const auto it = successors_.find(key); it != successors_.end()) return it->second;
  std::vector<RegexId> out;
  bool all = true;
  ByteSet left = bytes;
  while (!left.empty()) {
    ByteSet same_bytes = ByteSet::all();
    const RegexId next = derive(x, left.first(), same_bytes);
    left &= ~same_bytes;
    if (next == kEmptyRegex || !live(next)) {
      all = false;
    } else if (std::find(out.begin(), out.end(), next) == out.end()) {
      out.push_back(next);
    }
  }
  return remember_successors(x, kind, out, all);
}

RegexPool::Successors RegexPool::remember_successors(RegexId x, std::uint32_t kind,
                                                     std::span<const RegexId> states, bool all) {
  const Successors s{static_cast<std::uint32_t>(successor_states_.size()),
                     static_cast<std::uint16_t>(std::min<std::size_t>(states.size(), 0xFFFF)), all};
  successor_states_.insert(successor_states_.end(), states.begin(), states.begin() + s.count);
  successors_.emplace((std::uint64_t{x} << 8) | kind, s);
  return s;
}

const RegexPool::Successors* RegexPool::known_successors(RegexId x, std::uint32_t kind) const {
  const auto it = successors_.find((std::uint64_t{x} << 8) | kind);
  return it == successors_.end() ? nullptr : &it->second;
}

bool RegexPool::matches(RegexId x, std::string_view text) {
  for (char c : text) {
    x = step(x, static_cast<std::uint8_t>(c));
    if (x == kEmptyRegex) return false;
  }
  return nodes_[x].nullable;
}

Result<std::string> RegexPool::example(RegexId x, std::uint32_t fuel) {
  struct Entry {
    RegexId from;
    std::uint8_t byte;
  };
  std::unordered_map<RegexId, Entry> seen{{x, {kUnknown, 0}}};
  std::deque<RegexId> queue{x};
  const std::uint64_t enough = work_ + std::uint64_t{fuel} * kWorkPerState;
  while (!queue.empty()) {
    RegexId state = queue.front();
    queue.pop_front();
    if (nodes_[state].nullable) {
      std::string text;
      for (; seen.at(state).from != kUnknown; state = seen.at(state).from)
        text.push_back(static_cast<char>(seen.at(state).byte));
      std::reverse(text.begin(), text.end());
      return text;
    }
    ByteSet left = ByteSet::all();
    while (!left.empty()) {
      const std::uint8_t b = left.first();
      ByteSet same_bytes = ByteSet::all();
      const RegexId next = derive(state, b, same_bytes);
      left &= ~same_bytes;
      if (next == kEmptyRegex || nodes_[next].liveness == 2 || seen.contains(next)) continue;
      if (seen.size() >= fuel || work_ > enough || exceeded_)
        return Error{ErrorCode::kDeadline, "the regular expression needs too many states to decide", {}};
      seen.emplace(next, Entry{state, b});
      queue.push_back(next);
    }
  }
  return not_found("the regular expression matches nothing");
}

Result<bool> RegexPool::is_empty(RegexId x, std::uint32_t fuel) {
  if (nodes_[x].liveness != 0) return nodes_[x].liveness == 2;
  const Result<std::string> text = example(x, fuel);
  if (!text.ok() && text.error().code != ErrorCode::kNotFound) return text.error();
  nodes_[x].liveness = text.ok() ? 1 : 2;
  return !text.ok();
}

Result<bool> RegexPool::intersects(RegexId a, RegexId b, std::uint32_t fuel) {
  DI_ASSIGN(const bool empty, is_empty(all_of({a, b}), fuel));
  return !empty;
}

Result<bool> RegexPool::contains(RegexId outer, RegexId inner, std::uint32_t fuel) {
  return is_empty(minus(inner, outer), fuel);
}

Result<std::vector<std::string>> RegexPool::enumerate(RegexId x, std::size_t limit) {
  std::vector<std::string> out;
  std::vector<std::pair<std::string, RegexId>> level{{std::string(), x}}, next_level;
  if (!live(x)) return out;
  while (!level.empty()) {
    next_level.clear();
    for (const auto& [text, state] : level) {
      if (nodes_[state].nullable) out.push_back(text);
      for (int b = 0; b < 256; ++b) {
        const RegexId next = step(state, static_cast<std::uint8_t>(b));
        if (next != kEmptyRegex) next_level.emplace_back(text + static_cast<char>(b), next);
        if (out.size() + next_level.size() > limit * 2 + 16)
          return unsupported("the language has too many members to list");
      }
    }
    if (out.size() > limit) return unsupported("the language has too many members to list");
    std::swap(level, next_level);
    if (!level.empty() && level[0].first.size() > 4096)
      return unsupported("the language has too long members to list");
  }
  return out;
}

std::size_t RegexPool::memory_bytes() const {
  return nodes_.capacity() * sizeof(Node) + kids_.capacity() * sizeof(RegexId) +
         sets_.capacity() * sizeof(ByteSet) + arcs_.capacity() * sizeof(Arc) +
         tables_.capacity() * sizeof(RegexId) + first_sets_.capacity() * sizeof(ByteSet) +
         index_.capacity() * sizeof(std::uint32_t) + successors_.size() * 40 +
         successor_states_.capacity() * sizeof(RegexId);
}

std::string RegexPool::to_string(RegexId x) const {
  std::string out;
  print(x, 0, out);
  return out;
}

void RegexPool::print(RegexId x, int depth, std::string& out) const {
  if (depth > 60 || out.size() > 4000) {
    out += "...";
    return;
  }
  const Node& n = nodes_[x];
  const auto print_byte = [&out](int b) {
    if (b > 32 && b < 127 &&
        std::string_view("\\[]()*+?{}|&~-.").find(static_cast<char>(b)) == std::string_view::npos) {
      out.push_back(static_cast<char>(b));
    } else {
      out += fmt::format("\\x{:02X}", b);
    }
  };
  switch (n.kind) {
    case Kind::kEmpty:
      out += "[]";
      break;
    case Kind::kEpsilon:
      out += "()";
      break;
    case Kind::kAll:
      out += "[^]*";
      break;
    case Kind::kBytes: {
      const ByteSet& set = sets_[n.a];
      if (set.count() == 1) {
        print_byte(set.first());
        break;
      }
      out += '[';
      for (int b = 0; b < 256; ++b) {
        if (!set.test(static_cast<std::uint8_t>(b))) continue;
        int last = b;
        while (last < 255 && set.test(static_cast<std::uint8_t>(last + 1))) ++last;
        print_byte(b);
        if (last > b) {
          out += '-';
          print_byte(last);
        }
        b = last;
      }
      out += ']';
      break;
    }
    case Kind::kConcat: {
      RegexId rest = x;
      for (; nodes_[rest].kind == Kind::kConcat && out.size() < 4000; rest = nodes_[rest].b)
        print(nodes_[rest].a, depth + 1, out);
      print(rest, depth + 1, out);
      break;
    }
    case Kind::kOr:
    case Kind::kAnd: {
      out += '(';
      for (std::uint32_t i = 0; i < n.b; ++i) {
        if (i > 0) out += n.kind == Kind::kOr ? '|' : '&';
        print(kids_[n.a + i], depth + 1, out);
      }
      out += ')';
      break;
    }
    case Kind::kNot:
      out += "~(";
      print(n.a, depth + 1, out);
      out += ')';
      break;
    case Kind::kRepeat:
      out += '(';
      print(n.a, depth + 1, out);
      out += n.c == kUnbounded ? fmt::format("){{{},}}", n.b) : fmt::format("){{{},{}}}", n.b, n.c);
      break;
    case Kind::kShortest:
      out += "shortest(";
      print(n.a, depth + 1, out);
      out += ')';
      break;
    case Kind::kMultiple:
      out += fmt::format("multiple({}, {}, {})", n.a, n.b, n.c & ~kAfterPoint);
      break;
  }
}

}  // namespace deepinfer::grammar
