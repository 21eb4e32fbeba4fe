// Regular expressions over bytes as a hash-consed graph, with Boolean operators and counted repetition.
//
// Owns every expression built from it; a RegexId is an index and lives as long as the pool. Equal expressions
// get the same id, and constructors simplify, so ids work as DFA states: step(state, byte) is the derivative
// of the state's language, memoised, and state kEmptyRegex is the dead state. Counts are kept as numbers:
// X{0,1000000} is one node and each iteration one further state, built when reached. Negation is over all
// byte strings: ~X also contains ill-formed UTF-8, so intersect it with a text class.
//
// Not thread-safe: step, live and the decision procedures fill memo tables. Expression nesting is limited
// (kMaxRegexDepth) and so is the node count; past a limit constructors return kEmptyRegex and exceeded()
// turns true for good. Callers check it once at the end of a construction. Derivatives after J. A.
// Brzozowski, "Derivatives of regular expressions", J. ACM 11(4), 1964.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "grammar/charset.h"

namespace deepinfer::grammar {

using RegexId = std::uint32_t;
inline constexpr RegexId kEmptyRegex = 0;    // matches nothing
inline constexpr RegexId kEpsilonRegex = 1;  // matches the empty string only
inline constexpr RegexId kAllRegex = 2;      // matches every byte string
inline constexpr std::uint32_t kUnbounded = 0xFFFFFFFFu;
inline constexpr int kMaxRegexDepth = 500;  // nesting; bounds the C stack of recursive walks

/// A structural hash that does not depend on the pool: equal in two pools when the expressions were built
/// alike. Salted once per process.
struct RegexHash {
  std::uint64_t lo = 0, hi = 0;
  bool operator==(const RegexHash&) const = default;
};

class RegexPool {
 public:
  explicit RegexPool(std::uint32_t max_nodes = 500'000);

  // ---- Construction. Operands are ids of this pool.
  RegexId bytes(const ByteSet& set);
  RegexId byte(std::uint8_t value) { return bytes(ByteSet::of(value)); }
  /// The bytes of `text`, one after the other.
  RegexId literal(std::string_view text);
  /// One character out of the set, in UTF-8.
  RegexId chars(const CharSet& set);
  /// One well-formed UTF-8 character of any value.
  RegexId any_char() { return chars(CharSet::all()); }
  RegexId concat(RegexId a, RegexId b);
  RegexId concat(std::span<const RegexId> parts);
  RegexId concat(std::initializer_list<RegexId> parts) {
    return concat(std::span(parts.begin(), parts.size()));
  }
  RegexId alt(std::span<const RegexId> parts);
  RegexId alt(std::initializer_list<RegexId> parts) { return alt(std::span(parts.begin(), parts.size())); }
  RegexId all_of(std::span<const RegexId> parts);
  RegexId all_of(std::initializer_list<RegexId> parts) {
    return all_of(std::span(parts.begin(), parts.size()));
  }
  RegexId complement(RegexId x);
  /// a AND NOT b.
  RegexId minus(RegexId a, RegexId b) { return all_of({a, complement(b)}); }
  /// x repeated min to max times; max may be kUnbounded; min <= max.
  RegexId repeat(RegexId x, std::uint32_t min, std::uint32_t max = kUnbounded);
  RegexId optional(RegexId x) { return repeat(x, 0, 1); }
  RegexId star(RegexId x) { return repeat(x, 0); }
  RegexId plus(RegexId x) { return repeat(x, 1); }
  /// The strings of x of which no shorter prefix is in x ("lazy": stops at the first match).
  RegexId shortest(RegexId x);
  /// Digits, optionally with one '.' among or before them, whose value is an integral multiple of
  /// modulus / 10^scale. Says nothing else about the spelling: intersect it with a number syntax. The states
  /// count remainders, so modulus is limited to kMaxModulus (kEmptyRegex and exceeded() beyond); scale <=
  /// 1000.
  RegexId decimal_multiple(std::uint32_t modulus, std::uint32_t scale) {
    return decimal_state(modulus, 0, scale);
  }
  static constexpr std::uint32_t kMaxModulus = 65'536;

  // ---- The DFA.
  bool nullable(RegexId x) const { return nodes_[x].nullable; }
  /// The state after `byte`; kEmptyRegex exactly when no string of x begins with it. When the fuel
  /// of an emptiness test runs out the state counts as live and out_of_fuel() turns true.
  RegexId step(RegexId x, std::uint8_t byte) {
    const std::uint32_t table = nodes_[x].table;
    if (table != 0) [[likely]] {
      const RegexId next = tables_[(static_cast<std::size_t>(table) << 8) + byte];
      if (next != kUnknown) [[likely]]
        return next;
    }
    return step_slow(x, byte);
  }
  /// Whether a live state has a string longer than the empty one.
  bool can_continue(RegexId x) {
    const Node& n = nodes_[x];
    return x != kEpsilonRegex && (!n.boolean || !n.nullable || !first_bytes(x).empty());
  }
  /// The bytes a string of x can begin with.
  const ByteSet& first_bytes(RegexId x);
  /// Distinct live states a step away from a state, remembered under a number that the caller gives to its
  /// set of bytes or byte sequences (below 256). `all`: every one of them leads somewhere.
  struct Successors {
    std::uint32_t first;
    std::uint16_t count;
    bool all;
  };
  Successors successors(RegexId x, std::uint32_t kind, const ByteSet& bytes);
  Successors remember_successors(RegexId x, std::uint32_t kind, std::span<const RegexId> states, bool all);
  const Successors* known_successors(RegexId x, std::uint32_t kind) const;
  /// Valid until the next call that may add successors.
  std::span<const RegexId> states(const Successors& s) const {
    return {successor_states_.data() + s.first, s.count};
  }
  bool matches(RegexId x, std::string_view text);

  // ---- Decision procedures by exploring derivatives. kDeadline when more than `fuel` states, or
  // kWorkPerState operands for each of them, are needed.
  static constexpr std::uint32_t kWorkPerState = 64;
  Result<bool> is_empty(RegexId x, std::uint32_t fuel = 100'000);
  /// Is there a string in both?
  Result<bool> intersects(RegexId a, RegexId b, std::uint32_t fuel = 100'000);
  /// Is every string of `inner` in `outer`?
  Result<bool> contains(RegexId outer, RegexId inner, std::uint32_t fuel = 100'000);
  /// A shortest member (bytes), or kNotFound for the empty language.
  Result<std::string> example(RegexId x, std::uint32_t fuel = 100'000);
  /// All members in order of length when there are at most `limit`; kUnsupported when there are more.
  Result<std::vector<std::string>> enumerate(RegexId x, std::size_t limit);

  RegexHash hash(RegexId x) const { return nodes_[x].hash; }
  /// Nesting of the expression.
  int depth(RegexId x) const { return nodes_[x].depth; }
  /// A readable form, for error texts and tests.
  std::string to_string(RegexId x) const;

  bool exceeded() const { return exceeded_; }
  /// From here on at most `nodes` further nodes (and never more than the pool's limit).
  void grant(std::uint32_t nodes) {
    max_nodes_ = static_cast<std::uint32_t>(std::min<std::size_t>(pool_limit_, nodes_.size() + nodes));
  }
  bool out_of_fuel() const { return out_of_fuel_; }
  std::size_t node_count() const { return nodes_.size(); }
  std::size_t memory_bytes() const;

 private:
  enum class Kind : std::uint8_t {
    kEmpty,
    kEpsilon,
    kAll,
    kBytes,
    kConcat,
    kOr,
    kAnd,
    kNot,
    kRepeat,
    kShortest,
    kMultiple
  };
  static constexpr RegexId kUnknown = 0xFFFFFFFFu;
  static constexpr std::uint32_t kAfterPoint = 1u << 31;
  struct Node {
    Kind kind;
    bool nullable;
    bool boolean;           // contains And, Not or Shortest: emptiness is not syntactic
    std::uint8_t liveness;  // 0 unknown, 1 live, 2 empty
    std::uint16_t depth;
    std::uint16_t visits;
    std::uint32_t a, b, c;    // by kind: set index | head, tail | first kid, count | child, min, max |
                              // modulus, remainder, digits left after the point (kAfterPoint set behind it)
    std::uint32_t arcs = 0;   // memoised derivatives: list head in arcs_, 0 = none
    std::uint32_t table = 0;  // dense successor table, 0 = none
    std::uint32_t first = 0;  // index in first_sets_, 0 = not computed
    RegexHash hash;
  };
  struct Arc {
    ByteSet bytes;
    RegexId target;
    std::uint32_t next;
  };

  RegexId intern(Node node, std::span<const RegexId> kids = {});
  bool same(const Node& x, const Node& y, std::span<const RegexId> y_kids) const;
  std::span<const RegexId> kids(const Node& n) const { return {kids_.data() + n.a, n.b}; }
  void grow_index();
  RegexId decimal_state(std::uint32_t modulus, std::uint32_t remainder, std::uint32_t places);
  RegexId derive(RegexId x, std::uint8_t byte, ByteSet& same_bytes);
  RegexId derive_raw(RegexId x, std::uint8_t byte, ByteSet& same_bytes);
  RegexId step_slow(RegexId x, std::uint8_t byte);
  bool live(RegexId x);
  bool merge_repeats(std::vector<RegexId>& parts);
  void merge_byte_heads(std::vector<RegexId>& parts);
  RegexId boolean_node(Kind kind, std::vector<RegexId>& parts);
  RegexId utf8_node(std::span<const std::pair<std::string, std::string>> sequences, std::size_t position);
  void print(RegexId x, int depth, std::string& out) const;

  std::uint32_t pool_limit_;
  std::uint32_t max_nodes_;
  bool exceeded_ = false;
  bool out_of_fuel_ = false;
  std::uint64_t work_ = 0;  // operands looked at by alt, all_of and derivatives: what a search really costs
  std::vector<Node> nodes_;
  std::vector<RegexId> kids_;
  std::vector<ByteSet> sets_;
  std::vector<Arc> arcs_;
  std::vector<RegexId> tables_;
  std::vector<ByteSet> first_sets_;
  std::unordered_map<std::uint64_t, Successors> successors_;
  std::vector<RegexId> successor_states_;
  std::vector<std::uint32_t> index_;  // open addressing over node hashes
};

}  // namespace deepinfer::grammar
