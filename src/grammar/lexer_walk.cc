#include "grammar/lexer_walk.h"

#include <algorithm>
#include <string>

namespace deepinfer::grammar {
namespace {

constexpr std::size_t kMaxReachStates = 24;  // states of one level that reach() follows before it gives up

// Sets of more tokens than this are kept as bit masks.
std::size_t mask_threshold(std::size_t words) {
  return std::max<std::size_t>(64, words / 4);
}

TokenSet make_set(std::vector<TokenId>&& list, std::vector<std::uint32_t>&& bits, std::size_t words) {
  TokenSet out;
  if (bits.empty() && list.size() <= mask_threshold(words)) {
    out.list = std::move(list);
    out.list.shrink_to_fit();
    return out;
  }
  if (bits.empty()) bits.assign(words, 0);
  for (TokenId t : list) bits[static_cast<std::uint32_t>(t) >> 5] |= 1u << (t & 31);
  out.bits = std::move(bits);
  return out;
}

}  // namespace

void LexerWalk::walk(RegexId state, const TokenTrie& trie, LexerEntry& out, std::vector<std::uint32_t>* bits,
                     std::vector<TokenId>* list) {
  RegexId path[kMaxTokenBytes + 1];
  bool ends[kMaxTokenBytes + 1];  // can the lexeme end at this depth
  path[0] = state;
  ends[0] = false;
  const TokenTrie::Node* nodes = trie.data();
  const std::uint32_t count = trie.node_count();
  const TokenId* tokens = trie.tokens().data();
  std::uint32_t visited = 0;
  for (std::uint32_t i = 0; i < count; ++visited) {
    const TokenTrie::Node node = nodes[i];
    const std::size_t up = node.depth - 1u;
    if (ends[up]) out.after_end.set(node.byte);
    const RegexId next = pool_.step(path[up], node.byte);
    if (next == kEmptyRegex) {
      i += node.subtree;
      continue;
    }
    path[node.depth] = next;
    ends[node.depth] = pool_.nullable(next);
    const std::uint32_t last = nodes[i + 1].tokens;
    if (node.tokens != last) {
      if (!ends[node.depth] || pool_.can_continue(next)) {
        for (std::uint32_t t = node.tokens; t < last; ++t) {
          const auto id = static_cast<std::uint32_t>(tokens[t]);
          if (bits != nullptr) {
            (*bits)[id >> 5] |= 1u << (id & 31);
          } else {
            list->push_back(tokens[t]);
          }
        }
      } else {
        out.at_end.list.insert(out.at_end.list.end(), tokens + node.tokens, tokens + last);
      }
    }
    ++i;
  }
  fuel_ -= visited;
}

void LexerWalk::collect(RegexId state, const TokenTrie& trie, const ByteSet& bytes,
                        std::vector<std::pair<std::string, TokenId>>& out) {
  RegexId path[kMaxTokenBytes + 1];
  bool ends[kMaxTokenBytes + 1];
  path[0] = state;
  ends[0] = false;
  const TokenTrie::Node* nodes = trie.data();
  const std::uint32_t count = trie.node_count();
  std::uint32_t visited = 0;
  for (std::uint32_t i = 0; i < count && fuel_ > visited; ++visited) {
    const TokenTrie::Node node = nodes[i];
    const std::size_t up = node.depth - 1u;
    if (ends[up] && bytes.test(node.byte)) {
      for (std::uint32_t m = i; m < i + node.subtree; ++m) {
        for (TokenId t : trie.tokens_of(m)) {
          const std::string_view text = vocabulary_.text(t);
          out.emplace_back(text.substr(text.size() - (nodes[m].depth - up)), t);
        }
      }
      visited += node.subtree;
    }
    const RegexId next = pool_.step(path[up], node.byte);
    if (next == kEmptyRegex) {
      i += node.subtree;
      continue;
    }
    path[node.depth] = next;
    ends[node.depth] = pool_.nullable(next);
    ++i;
  }
  fuel_ -= visited;
}

// Lead byte ranges with the range of the second byte; further bytes (the last number says how many)
// are 80..BF.
constexpr std::uint8_t kUtf8Forms[][5] = {{0xC2, 0xDF, 0x80, 0xBF, 0}, {0xE0, 0xE0, 0xA0, 0xBF, 1},
                                          {0xE1, 0xEC, 0x80, 0xBF, 1}, {0xED, 0xED, 0x80, 0x9F, 1},
                                          {0xEE, 0xEF, 0x80, 0xBF, 1}, {0xF0, 0xF0, 0x90, 0xBF, 2},
                                          {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2}};
// Numbers for RegexPool::successors: sets of single bytes are named by the slice, these are whole characters,
// continuation bytes, and the lead and second bytes of each form.
constexpr std::uint32_t kMultibyteKind = 100, kContinuationKind = 101, kLeadKind = 110, kSecondKind = 120;

// The states one multi-byte character after `state`. More than 0xFFFE are never followed: reach() stops long
// before.
RegexPool::Successors LexerWalk::multibyte_successors(RegexId state) {
  if (const RegexPool::Successors* known = pool_.known_successors(state, kMultibyteKind)) return *known;
  static const ByteSet continuation = ByteSet::range(0x80, 0xBF);
  std::vector<RegexId> level, next_level, out;
  bool all = true;
  const auto advance = [&](RegexId from, std::uint32_t kind, const ByteSet& bytes, std::vector<RegexId>& to) {
    const RegexPool::Successors s = pool_.successors(from, kind, bytes);
    all = all && s.all;
    for (RegexId next : pool_.states(s))
      if (std::find(to.begin(), to.end(), next) == to.end()) to.push_back(next);
  };
  for (std::uint32_t f = 0; f < std::size(kUtf8Forms); ++f) {
    const auto& form = kUtf8Forms[f];
    level.clear();
    advance(state, kLeadKind + f, ByteSet::range(form[0], form[1]), level);
    for (int position = 1; position < 2 + form[4]; ++position) {
      next_level.clear();
      for (RegexId s : level) {
        if (position == 1) {
          advance(s, kSecondKind + f, ByteSet::range(form[2], form[3]), next_level);
        } else {
          advance(s, kContinuationKind, continuation, next_level);
        }
      }
      std::swap(level, next_level);
      if (level.size() > kMaxReachStates) break;
    }
    for (RegexId s : level)
      if (std::find(out.begin(), out.end(), s) == out.end()) out.push_back(s);
    if (out.size() > kMaxReachStates) break;  // reach() gives up on that many
  }
  return pool_.remember_successors(state, kMultibyteKind, out, all);
}

// Adds the states one slice character after `state`; false when some character of the slice is not accepted.
bool LexerWalk::successors(RegexId state, const VocabularySlice& slice, bool first,
                           std::vector<RegexId>& out) {
  bool all = true;
  const auto add = [&](const RegexPool::Successors& s) {
    all = all && s.all;
    for (RegexId next : pool_.states(s))
      if (std::find(out.begin(), out.end(), next) == out.end()) out.push_back(next);
  };
  const ByteSet& ascii = first ? slice.first_ascii : slice.rest_ascii;
  if (!ascii.empty()) add(pool_.successors(state, first ? slice.first_kind : slice.rest_kind, ascii));
  if (slice.multibyte) add(multibyte_successors(state));
  return all;
}

LexerWalk::Reach LexerWalk::reach(RegexId state, const VocabularySlice& slice) {
  constexpr std::uint32_t kNever = 0xFFFFFFFFu;
  Reach r{0, kNever, false};
  std::vector<RegexId> level{state}, next_level, seen;
  bool inner_open = true;
  for (std::uint32_t length = 1;
       length <= std::max<std::uint32_t>(slice.max_chars, VocabularySlice::kLengths); ++length) {
    next_level.clear();
    bool all = true;
    for (RegexId s : level) all = successors(s, slice, length == 1, next_level) && all;
    if (next_level.size() > kMaxReachStates) {
      r.can_end = true;
      return r;
    }
    if (next_level.empty()) {
      r.outer = length;
      return r;
    }
    for (RegexId s : next_level) {
      if (!pool_.nullable(s)) continue;
      r.can_end = true;
      if (!pool_.can_continue(s)) all = false;
    }
    if (!all) inner_open = false;
    if (inner_open) r.inner = length;
    // Once a level adds no state, all further ones look alike (the first level differs when its characters
    // do).
    bool grown = false;
    for (RegexId s : next_level) {
      if (std::find(seen.begin(), seen.end(), s) == seen.end()) {
        seen.push_back(s);
        grown = true;
      }
    }
    if (!grown && length >= 2) {
      if (inner_open) {
        // Every state of the closed set was reached; each had all its successors while it was expanded.
        r.inner = kNever;
      }
      return r;
    }
    if (seen.size() > kMaxReachStates * 2) {
      r.can_end = true;
      return r;
    }
    std::swap(level, next_level);
  }
  if (inner_open) r.inner = kNever;
  return r;
}

LexerEntryPtr LexerWalk::entry(RegexId state, const TokenTrie& trie) {
  auto out = std::make_shared<LexerEntry>();
  const std::size_t words = vocabulary_.mask_words();
  std::vector<TokenId> list;
  if (&trie != vocabulary_.trie().get()) {
    walk(state, trie, *out, nullptr, &list);
    out->inside = make_set(std::move(list), {}, words);
    out->at_end = make_set(std::move(out->at_end.list), {}, words);
    return out;
  }
  std::vector<std::uint32_t> bits;
  const ByteSet first = pool_.first_bytes(state);
  if (first.count() <= 2) {  // a literal or a quote: slices gain nothing
    walk(state, trie, *out, nullptr, &list);
    out->inside = make_set(std::move(list), {}, words);
    out->at_end = make_set(std::move(out->at_end.list), {}, words);
    return out;
  }
  for (const VocabularySlice& slice : vocabulary_.slices()) {
    bool starts = slice.multibyte && ((first.words[2] | first.words[3]) != 0);
    starts = starts || !(slice.first_ascii & first).empty();
    if (!starts) continue;
    const Reach r = reach(state, slice);
    if (r.can_end) {
      out->after_end |= slice.first_ascii | slice.rest_ascii;
      if (slice.multibyte) out->after_end.words[2] = out->after_end.words[3] = ~0ull;
    }
    int taken = -1;
    for (int g = 0; g < VocabularySlice::kLengths; ++g) {
      const auto length = static_cast<std::uint32_t>(g + 1);
      if (r.inner >= (g + 1 < VocabularySlice::kLengths ? length : std::max(length, slice.max_chars))) {
        taken = g;
        continue;
      }
      if (r.outer <= length) continue;  // after_end already holds what may follow an end inside
      if (bits.empty() && list.size() > mask_threshold(words)) bits.assign(words, 0);
      walk(state, *slice.by_length[static_cast<std::size_t>(g)], *out, bits.empty() ? nullptr : &bits, &list);
    }
    if (taken >= 0) {
      const std::vector<std::uint32_t>& mask = slice.up_to[static_cast<std::size_t>(taken)];
      if (bits.empty()) bits.assign(words, 0);
      for (std::size_t w = 0; w < words; ++w) bits[w] |= mask[w];
    }
  }
  walk(state, *vocabulary_.rest(), *out, bits.empty() ? nullptr : &bits, &list);
  out->inside = make_set(std::move(list), std::move(bits), words);
  out->at_end = make_set(std::move(out->at_end.list), {}, words);
  return out;
}

TriePtr LexerWalk::remainder(RegexId state, const TokenTrie& trie, const ByteSet& bytes) {
  std::vector<std::pair<std::string, TokenId>> parts;
  if (&trie != vocabulary_.trie().get()) {
    collect(state, trie, bytes, parts);
  } else {
    const ByteSet first = pool_.first_bytes(state);
    for (const VocabularySlice& slice : vocabulary_.slices()) {
      ByteSet slice_bytes = slice.first_ascii | slice.rest_ascii;
      if (slice.multibyte) slice_bytes.words[2] = slice_bytes.words[3] = ~0ull;
      if ((slice_bytes & bytes).empty()) continue;
      const bool starts = (slice.multibyte && ((first.words[2] | first.words[3]) != 0)) ||
                          !(slice.first_ascii & first).empty();
      if (!starts || !reach(state, slice).can_end) continue;
      for (const TriePtr& group : slice.by_length) collect(state, *group, bytes, parts);
    }
    collect(state, *vocabulary_.rest(), bytes, parts);
  }
  std::vector<std::pair<std::string_view, TokenId>> views;
  views.reserve(parts.size());
  for (const auto& [text, token] : parts) views.emplace_back(text, token);
  return TokenTrie::build(std::move(views));
}

}  // namespace deepinfer::grammar
