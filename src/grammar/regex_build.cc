// Construction and simplification of regex nodes. Simplifications keep the number of distinct derivatives
// small: alternatives and conjunctions are flattened, sorted and deduplicated, sequences lean to the right,
// adjacent repetitions of one expression add their counts, and alternatives that differ only in a
// repetition's bounds or in a leading byte are merged.
#include <algorithm>
#include <atomic>
#include <random>
#include <tuple>

#include "grammar/regex_pool.h"

namespace deepinfer::grammar {
namespace {

constexpr std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 31;
  x *= 0x9E3779B97F4A7C15ull;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 32;
  return x;
}

std::uint64_t process_salt() {
  static const std::uint64_t salt = [] {
    std::random_device device;
    return (static_cast<std::uint64_t>(device()) << 32) | device();
  }();
  return salt;
}

struct Hasher {
  std::uint64_t lo = process_salt(), hi = mix(process_salt() + 1);
  void add(std::uint64_t v) {
    lo = mix(lo ^ v);
    hi = mix(hi + v * 0xD6E8FEB86659FD93ull + 0x51);
  }
  void add(const RegexHash& h) {
    add(h.lo);
    add(h.hi);
  }
  RegexHash done() const { return {lo, hi}; }
};

std::uint32_t saturating_add(std::uint32_t a, std::uint32_t b) {
  if (a == kUnbounded || b == kUnbounded) return kUnbounded;
  const std::uint64_t sum = std::uint64_t{a} + b;
  return sum >= kUnbounded ? kUnbounded : static_cast<std::uint32_t>(sum);
}

}  // namespace

RegexPool::RegexPool(std::uint32_t max_nodes) : pool_limit_(max_nodes), max_nodes_(max_nodes) {
  nodes_.reserve(64);
  tables_.resize(256, kUnknown);  // table 0 is never used
  arcs_.push_back({{}, kUnknown, 0});
  first_sets_.push_back({});
  index_.assign(256, kUnknown);
  intern({Kind::kEmpty, false, false, 2, 1, 0, 0, 0, 0, 0, 0, 0, {}});
  intern({Kind::kEpsilon, true, false, 1, 1, 0, 0, 0, 0, 0, 0, 0, {}});
  intern({Kind::kAll, true, false, 1, 1, 0, 0, 0, 0, 0, 0, 0, {}});
}

bool RegexPool::same(const Node& x, const Node& y, std::span<const RegexId> y_kids) const {
  if (x.kind != y.kind) return false;
  if (x.kind == Kind::kBytes) return sets_[x.a] == sets_[y.a];
  if (x.kind == Kind::kOr || x.kind == Kind::kAnd) return std::ranges::equal(kids(x), y_kids);
  return x.a == y.a && x.b == y.b && x.c == y.c;
}

RegexId RegexPool::intern(Node node, std::span<const RegexId> node_kids) {
  Hasher h;
  h.add(static_cast<std::uint64_t>(node.kind));
  switch (node.kind) {
    case Kind::kBytes:
      for (std::uint64_t w : sets_[node.a].words) h.add(w);
      break;
    case Kind::kConcat:
      h.add(nodes_[node.a].hash);
      h.add(nodes_[node.b].hash);
      break;
    case Kind::kOr:
    case Kind::kAnd: {  // order of children depends on the pool, so their hashes are summed
      RegexHash sum{node_kids.size(), node_kids.size()};
      for (RegexId k : node_kids) {
        sum.lo += mix(nodes_[k].hash.lo);
        sum.hi += mix(nodes_[k].hash.hi + 7);
      }
      h.add(sum);
      break;
    }
    case Kind::kRepeat:
      h.add(nodes_[node.a].hash);
      h.add((std::uint64_t{node.b} << 32) | node.c);
      break;
    case Kind::kNot:
    case Kind::kShortest:
      h.add(nodes_[node.a].hash);
      break;
    case Kind::kMultiple:
      h.add((std::uint64_t{node.a} << 32) | node.b);
      h.add(node.c);
      break;
    default:
      break;
  }
  node.hash = h.done();
  std::size_t mask = index_.size() - 1;
  std::size_t slot = node.hash.lo & mask;
  for (; index_[slot] != kUnknown; slot = (slot + 1) & mask) {
    const Node& other = nodes_[index_[slot]];
    if (other.hash == node.hash && same(other, node, node_kids)) return index_[slot];
  }
  if (nodes_.size() >= max_nodes_ || node.depth > kMaxRegexDepth) {
    exceeded_ = true;
    return kEmptyRegex;
  }
  const RegexId id = static_cast<RegexId>(nodes_.size());
  if (!node_kids.empty()) {
    node.a = static_cast<std::uint32_t>(kids_.size());
    node.b = static_cast<std::uint32_t>(node_kids.size());
    kids_.insert(kids_.end(), node_kids.begin(), node_kids.end());
  }
  nodes_.push_back(node);
  index_[slot] = id;
  if (nodes_.size() * 2 > index_.size()) grow_index();
  return id;
}

void RegexPool::grow_index() {
  index_.assign(index_.size() * 2, kUnknown);
  const std::size_t mask = index_.size() - 1;
  for (RegexId id = 0; id < nodes_.size(); ++id) {
    std::size_t slot = nodes_[id].hash.lo & mask;
    while (index_[slot] != kUnknown) slot = (slot + 1) & mask;
    index_[slot] = id;
  }
}

RegexId RegexPool::bytes(const ByteSet& set) {
  if (set.empty()) return kEmptyRegex;
  sets_.push_back(set);
  const std::size_t before = nodes_.size();
  const RegexId id = intern(
      {Kind::kBytes, false, false, 1, 1, 0, static_cast<std::uint32_t>(sets_.size() - 1), 0, 0, 0, 0, 0, {}});
  if (nodes_.size() == before) sets_.pop_back();
  return id;
}

RegexId RegexPool::literal(std::string_view text) {
  RegexId result = kEpsilonRegex;
  for (std::size_t i = text.size(); i-- > 0;)
    result = concat(byte(static_cast<std::uint8_t>(text[i])), result);
  return result;
}

RegexId RegexPool::concat(std::span<const RegexId> parts) {
  RegexId result = kEpsilonRegex;
  for (std::size_t i = parts.size(); i-- > 0;) result = concat(parts[i], result);
  return result;
}

RegexId RegexPool::concat(RegexId a, RegexId b) {
  if (a == kEmptyRegex || b == kEmptyRegex) return kEmptyRegex;
  if (a == kEpsilonRegex) return b;
  if (b == kEpsilonRegex) return a;
  if (a == kAllRegex && b == kAllRegex) return a;
  // (h1 h2 ... t) b = h1 (h2 ... (t b)).
  std::vector<RegexId> heads;
  while (nodes_[a].kind == Kind::kConcat) {
    heads.push_back(nodes_[a].a);
    a = nodes_[a].b;
  }
  heads.push_back(a);
  RegexId result = b;
  while (!heads.empty()) {
    const RegexId head = heads.back();
    heads.pop_back();
    // X{m,n} X{p,q} = X{m+p,n+q}.
    const Node h = nodes_[head];
    const Node r = nodes_[result];
    const RegexId next = r.kind == Kind::kConcat ? r.a : result;
    const Node n = nodes_[next];
    if (h.kind == Kind::kRepeat && n.kind == Kind::kRepeat && h.a == n.a) {
      const RegexId joined = repeat(h.a, saturating_add(h.b, n.b), saturating_add(h.c, n.c));
      if (r.kind != Kind::kConcat) {
        result = joined;
        continue;
      }
      heads.push_back(joined);
      result = r.b;
      continue;
    }
    if (head == kAllRegex && next == kAllRegex) continue;
    Node node{Kind::kConcat,
              h.nullable && r.nullable,
              h.boolean || r.boolean,
              0,
              std::max<std::uint16_t>(static_cast<std::uint16_t>(h.depth + 1), r.depth),
              0,
              head,
              result,
              0,
              0,
              0,
              0,
              {}};
    if (!node.boolean) node.liveness = 1;
    result = intern(node);
    if (result == kEmptyRegex) return result;
  }
  return result;
}

// In an alternative, X{m1,n1} R and X{m2,n2} R are X{min,max} R when the two ranges touch.
bool RegexPool::merge_repeats(std::vector<RegexId>& parts) {
  struct Piece {
    RegexId child, rest;
    std::uint32_t min, max;
  };
  std::vector<Piece> pieces;
  std::vector<RegexId> others;
  for (RegexId p : parts) {
    const Node& n = nodes_[p];
    if (n.kind == Kind::kRepeat) {
      pieces.push_back({n.a, kEpsilonRegex, n.b, n.c});
    } else if (n.kind == Kind::kConcat && nodes_[n.a].kind == Kind::kRepeat) {
      pieces.push_back({nodes_[n.a].a, n.b, nodes_[n.a].b, nodes_[n.a].c});
    } else {
      others.push_back(p);
    }
  }
  if (pieces.empty()) return false;
  // "R" itself is X{0,0} R, and the empty string X{0,0}.
  bool changed = false;
  for (RegexId& p : others) {
    for (Piece& piece : pieces) {
      if (piece.rest == p && piece.min <= 1) {
        piece.min = 0;
        p = kUnknown;
        changed = true;
        break;
      }
    }
  }
  std::erase(others, kUnknown);
  std::sort(pieces.begin(), pieces.end(), [](const Piece& x, const Piece& y) {
    return std::tie(x.child, x.rest, x.min, x.max) < std::tie(y.child, y.rest, y.min, y.max);
  });
  std::size_t kept = 0;
  for (const Piece& p : pieces) {
    if (kept > 0) {
      Piece& last = pieces[kept - 1];
      if (last.child == p.child && last.rest == p.rest && p.min <= saturating_add(last.max, 1)) {
        last.max = std::max(last.max, p.max);
        changed = true;
        continue;
      }
    }
    pieces[kept++] = p;
  }
  if (!changed) return false;
  pieces.resize(kept);
  parts = std::move(others);
  for (const Piece& p : pieces) parts.push_back(concat(repeat(p.child, p.min, p.max), p.rest));
  return true;
}

// In an alternative, [a] R and [b] R are [ab] R.
void RegexPool::merge_byte_heads(std::vector<RegexId>& parts) {
  struct Piece {
    RegexId rest;
    ByteSet set;
    RegexId original;
  };
  std::vector<Piece> pieces;
  std::size_t kept = 0;
  for (RegexId p : parts) {
    const Node& n = nodes_[p];
    if (n.kind == Kind::kBytes) {
      pieces.push_back({kEpsilonRegex, sets_[n.a], p});
    } else if (n.kind == Kind::kConcat && nodes_[n.a].kind == Kind::kBytes) {
      pieces.push_back({n.b, sets_[nodes_[n.a].a], p});
    } else {
      parts[kept++] = p;
    }
  }
  if (pieces.empty()) return;
  parts.resize(kept);
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& x, const Piece& y) { return x.rest < y.rest; });
  for (std::size_t i = 0; i < pieces.size();) {
    std::size_t j = i + 1;
    ByteSet set = pieces[i].set;
    while (j < pieces.size() && pieces[j].rest == pieces[i].rest) set |= pieces[j++].set;
    parts.push_back(j == i + 1 ? pieces[i].original : concat(bytes(set), pieces[i].rest));
    i = j;
  }
}

RegexId RegexPool::alt(std::span<const RegexId> operands) {
  std::vector<RegexId> parts;
  work_ += operands.size();
  for (RegexId p : operands) {
    const Node& n = nodes_[p];
    if (n.kind == Kind::kOr) {
      const auto k = kids(n);
      parts.insert(parts.end(), k.begin(), k.end());
    } else {
      parts.push_back(p);
    }
  }
  for (int round = 0; round < 8; ++round) {
    std::sort(parts.begin(), parts.end());
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
    if (!parts.empty() && parts[0] == kEmptyRegex) parts.erase(parts.begin());
    if (parts.empty()) return kEmptyRegex;
    if (parts.size() == 1) return parts[0];
    if (std::binary_search(parts.begin(), parts.end(), kAllRegex)) return kAllRegex;
    if (parts[0] == kEpsilonRegex) {
      bool other_nullable = false;
      for (std::size_t i = 1; i < parts.size() && !other_nullable; ++i)
        other_nullable = nodes_[parts[i]].nullable;
      if (other_nullable) parts.erase(parts.begin());
      if (parts.size() == 1) return parts[0];
    }
    const std::size_t before = parts.size();
    work_ += before;
    merge_byte_heads(parts);
    const bool merged = merge_repeats(parts);
    if (parts.size() == before && !merged) break;
    // Merging may have produced nested alternatives again.
    std::vector<RegexId> flat;
    for (RegexId p : parts) {
      const Node& n = nodes_[p];
      if (n.kind == Kind::kOr) {
        const auto k = kids(n);
        flat.insert(flat.end(), k.begin(), k.end());
      } else {
        flat.push_back(p);
      }
    }
    parts = std::move(flat);
  }
  return boolean_node(Kind::kOr, parts);
}

RegexId RegexPool::all_of(std::span<const RegexId> operands) {
  std::vector<RegexId> parts;
  for (RegexId p : operands) {
    const Node& n = nodes_[p];
    if (n.kind == Kind::kAnd) {
      const auto k = kids(n);
      parts.insert(parts.end(), k.begin(), k.end());
    } else {
      parts.push_back(p);
    }
  }
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  std::erase(parts, kAllRegex);
  if (parts.empty()) return kAllRegex;
  if (parts[0] == kEmptyRegex) return kEmptyRegex;
  if (parts[0] == kEpsilonRegex) {
    for (RegexId p : parts)
      if (!nodes_[p].nullable) return kEmptyRegex;
    return kEpsilonRegex;
  }
  // Single-byte operands meet in one set; an operand beside its own complement leaves nothing.
  ByteSet set = ByteSet::all();
  bool has_set = false;
  for (RegexId p : parts) {
    const Node& n = nodes_[p];
    if (n.kind == Kind::kBytes) set &= sets_[n.a], has_set = true;
    if (n.kind == Kind::kNot && std::binary_search(parts.begin(), parts.end(), n.a)) return kEmptyRegex;
  }
  if (has_set) {
    std::erase_if(parts, [&](RegexId p) { return nodes_[p].kind == Kind::kBytes; });
    const RegexId merged = bytes(set);
    if (merged == kEmptyRegex) return kEmptyRegex;
    parts.push_back(merged);
    std::sort(parts.begin(), parts.end());
  }
  if (parts.size() == 1) return parts[0];
  return boolean_node(Kind::kAnd, parts);
}

RegexId RegexPool::boolean_node(Kind kind, std::vector<RegexId>& parts) {
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  if (kind == Kind::kOr && !parts.empty() && parts[0] == kEmptyRegex) parts.erase(parts.begin());
  if (parts.empty()) return kEmptyRegex;
  if (parts.size() == 1) return parts[0];
  Node node{kind, kind == Kind::kAnd, kind == Kind::kAnd, 0, 0, 0, 0, 0, 0, 0, 0, 0, {}};
  for (RegexId p : parts) {
    const Node& n = nodes_[p];
    node.nullable = kind == Kind::kOr ? (node.nullable || n.nullable) : (node.nullable && n.nullable);
    node.boolean = node.boolean || n.boolean;
    node.depth = std::max<std::uint16_t>(node.depth, static_cast<std::uint16_t>(n.depth + 1));
  }
  if (!node.boolean || node.nullable) node.liveness = 1;
  return intern(node, parts);
}

RegexId RegexPool::complement(RegexId x) {
  if (x == kEmptyRegex) return kAllRegex;
  if (x == kAllRegex) return kEmptyRegex;
  const Node n = nodes_[x];
  if (n.kind == Kind::kNot) return n.a;
  Node node{Kind::kNot, !n.nullable, true, 0, static_cast<std::uint16_t>(n.depth + 1), 0, x, 0, 0,
            0,          0,           0,    {}};
  if (node.nullable) node.liveness = 1;
  return intern(node);
}

RegexId RegexPool::shortest(RegexId x) {
  const Node n = nodes_[x];
  if (n.nullable) return kEpsilonRegex;
  if (x == kEmptyRegex || n.kind == Kind::kBytes || n.kind == Kind::kShortest) return x;
  return intern(
      {Kind::kShortest, false, true, 0, static_cast<std::uint16_t>(n.depth + 1), 0, x, 0, 0, 0, 0, 0, {}});
}

// `places`: digits that still count after the point; once they are used only zeros may follow.
RegexId RegexPool::decimal_state(std::uint32_t modulus, std::uint32_t remainder, std::uint32_t places) {
  if (modulus == 0 || modulus > kMaxModulus) {
    exceeded_ = true;
    return kEmptyRegex;
  }
  const std::uint32_t left = places & ~kAfterPoint;
  std::uint64_t shifted = remainder % modulus;
  std::uint64_t reach = 1;  // 10^left, as far as it matters
  for (std::uint32_t i = 0; i < left; ++i) {
    shifted = shifted * 10 % modulus;
    reach = std::min<std::uint64_t>(reach * 10, modulus);
  }
  // Behind the point the digits left can only add 0 .. 10^left - 1.
  if ((places & kAfterPoint) != 0 && (modulus - shifted) % modulus >= reach) return kEmptyRegex;
  return intern(
      {Kind::kMultiple, shifted == 0, true, 1, 1, 0, modulus, remainder % modulus, places, 0, 0, 0, {}});
}

RegexId RegexPool::repeat(RegexId x, std::uint32_t min, std::uint32_t max) {
  DI_CHECK(min <= max, "repetition bounds out of order");
  if (max == 0 || x == kEpsilonRegex) return kEpsilonRegex;
  if (x == kEmptyRegex) return min == 0 ? kEpsilonRegex : kEmptyRegex;
  if (x == kAllRegex) return x;
  if (min == 1 && max == 1) return x;
  const Node n = nodes_[x];
  if (n.nullable) min = 0;  // fewer repetitions than asked for can be filled with empty ones
  if (n.nullable && max == 1) return x;
  if (x == bytes(ByteSet::all()) && min == 0 && max == kUnbounded) return kAllRegex;
  // (X{a,b}){m,n} = X{a m, b n} when the ranges [a k, b k] for k = m..n leave no gap.
  if (n.kind == Kind::kRepeat) {
    const std::uint64_t gap = n.b == 0 ? 0 : n.b - 1;
    const bool joined =
        n.c == kUnbounded ? (min > 0 || n.b <= 1) : (min == max || std::uint64_t{min} * (n.c - n.b) >= gap);
    const std::uint64_t low = std::uint64_t{n.b} * min;
    const std::uint64_t high = n.c == kUnbounded || max == kUnbounded ? kUnbounded : std::uint64_t{n.c} * max;
    // A bound beyond 2^32 - 2 iterations is out of any text's reach and counts as none.
    if (joined && low < kUnbounded)
      return repeat(n.a, static_cast<std::uint32_t>(low),
                    static_cast<std::uint32_t>(std::min<std::uint64_t>(high, kUnbounded)));
  }
  Node node{Kind::kRepeat,
            min == 0,
            n.boolean,
            0,
            static_cast<std::uint16_t>(n.depth + 1),
            0,
            x,
            min,
            max,
            0,
            0,
            0,
            {}};
  if (!n.boolean || min == 0) node.liveness = 1;
  return intern(node);
}

namespace {

// Appends the byte sequences of code points [first, last], all of one UTF-8 length and cut so that each entry
// is a product of byte ranges: `low[i]..high[i]` at position i.
void utf8_sequences(std::uint32_t first, std::uint32_t last,
                    std::vector<std::pair<std::string, std::string>>& out) {
  static constexpr std::uint32_t kLast[] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
  for (std::uint32_t limit : kLast) {
    if (first > limit || first > last) continue;
    std::uint32_t part_last = std::min(last, limit);
    std::uint32_t at = first;
    while (at <= part_last) {
      // The longest stretch from `at` whose trailing 6-bit groups are whole.
      std::uint32_t end = part_last;
      for (int shift = 6; shift <= 18; shift += 6) {
        const std::uint32_t low_mask = (1u << shift) - 1;
        if ((at & ~low_mask) != (end & ~low_mask)) {
          if ((at & low_mask) != 0) {
            end = at | low_mask;
          } else if ((end & low_mask) != low_mask) {
            end = (end & ~low_mask) - 1;
          }
        }
      }
      std::string a, b;
      append_utf8(at, a);
      append_utf8(end, b);
      out.emplace_back(std::move(a), std::move(b));
      at = end + 1;
    }
    first = part_last + 1;
  }
}

}  // namespace

// The alternatives of `sequences` from `position` on; sequences are sorted and agree before `position`.
RegexId RegexPool::utf8_node(std::span<const std::pair<std::string, std::string>> sequences,
                             std::size_t position) {
  std::vector<std::pair<RegexId, ByteSet>> by_rest;
  for (std::size_t i = 0; i < sequences.size();) {
    const auto low = static_cast<std::uint8_t>(sequences[i].first[position]);
    const auto high = static_cast<std::uint8_t>(sequences[i].second[position]);
    std::size_t j = i + 1;
    if (sequences[i].first.size() > position + 1) {
      while (j < sequences.size() && static_cast<std::uint8_t>(sequences[j].first[position]) == low &&
             static_cast<std::uint8_t>(sequences[j].second[position]) == high)
        ++j;
    }
    const RegexId rest = sequences[i].first.size() == position + 1
                             ? kEpsilonRegex
                             : utf8_node(sequences.subspan(i, j - i), position + 1);
    auto found = std::find_if(by_rest.begin(), by_rest.end(), [&](const auto& e) { return e.first == rest; });
    if (found == by_rest.end()) found = by_rest.insert(by_rest.end(), {rest, ByteSet{}});
    found->second |= ByteSet::range(low, high);
    i = j;
  }
  std::vector<RegexId> parts;
  for (const auto& [rest, set] : by_rest) parts.push_back(concat(bytes(set), rest));
  return alt(parts);
}

RegexId RegexPool::chars(const CharSet& set) {
  std::vector<std::pair<std::string, std::string>> sequences;
  const CharSet valid = set.minus(CharSet::range(0xD800, 0xDFFF));
  for (const CharSet::Range& r : valid.ranges()) utf8_sequences(r.first, r.second, sequences);
  if (sequences.empty()) return kEmptyRegex;
  std::sort(sequences.begin(), sequences.end());
  return utf8_node(sequences, 0);
}

}  // namespace deepinfer::grammar
