#include "tokenizer/bpe.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <queue>

#include "base/check.h"

namespace deepinfer {
namespace {

constexpr std::size_t kShortPiece = 48;
// Odd 64-bit constants for multiplicative hashing (fractional digits of the golden ratio and of pi).
constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;
constexpr std::uint64_t kPi = 0x243F6A8885A308D3u;

std::uint64_t mix(std::uint64_t x) {
  x *= kGolden;
  return x ^ (x >> 29);
}

std::uint64_t load64(const char* p) {
  std::uint64_t x = 0;
  std::memcpy(&x, p, 8);
  return x;
}

std::uint64_t hash_bytes(std::string_view s) {
  std::uint64_t h = kPi ^ s.size();
  const char* p = s.data();
  std::size_t n = s.size();
  for (; n > 8; n -= 8, p += 8) h = mix(h ^ load64(p));
  std::uint64_t tail = 0;
  std::memcpy(&tail, p, n);
  h = mix(h ^ tail);
  return h ^ (h >> 32);
}

std::uint64_t table_size(std::size_t entries) {
  std::uint64_t size = 16;
  while (size < 2 * entries) size *= 2;
  return size;
}

std::uint64_t pack(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

// A thread's memory of recently merged pieces, direct-mapped: 64 bytes an entry, 1 MiB in all.
struct CacheEntry {
  static constexpr std::size_t kMaxBytes = 28, kMaxTokens = 6;
  std::uint32_t serial = 0;
  std::uint8_t size = 0, count = 0;
  std::array<TokenId, kMaxTokens> tokens{};
  std::array<char, kMaxBytes> bytes{};
};
constexpr std::size_t kCacheEntries = 16384;

CacheEntry* thread_cache() {
  thread_local const std::unique_ptr<CacheEntry[]> cache = std::make_unique<CacheEntry[]>(kCacheEntries);
  return cache.get();
}

std::uint32_t next_serial() {
  static std::atomic<std::uint32_t> serial{0};
  return ++serial;
}

}  // namespace

void TokenBytes::push_back(std::string_view token) {
  bytes.insert(bytes.end(), token.begin(), token.end());
  offsets.push_back(bytes.size());
}

Bpe::Bpe(const std::vector<Merge>& merges, const std::array<TokenId, 256>& byte_tokens,
         const TokenBytes& tokens, const std::vector<TokenId>& words, bool ignore_merges)
    : byte_tokens_(byte_tokens), serial_(next_serial()) {
  pairs_.resize(table_size(merges.size()));
  pair_mask_ = pairs_.size() - 1;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& m = merges[rank];
    const std::uint64_t pair = pack(m.left, m.right);
    std::uint64_t at = mix(pair) & pair_mask_;
    while (pairs_[at].pair != kNoPair) at = (at + 1) & pair_mask_;
    pairs_[at] = {pair, static_cast<std::uint32_t>(rank), m.merged};
  }

  words_.resize(table_size(words.size()));
  word_mask_ = words_.size() - 1;
  std::vector<TokenId> merged;
  for (TokenId id : words) {
    const std::string_view word = tokens[id];
    if (!ignore_merges) {
      merged.clear();
      merge_piece(word, merged);
      if (merged.size() != 1 || merged[0] != id) continue;
    }
    const std::uint64_t hash = hash_bytes(word);
    std::uint64_t at = hash & word_mask_;
    while (words_[at].id >= 0) at = (at + 1) & word_mask_;
    words_[at] = {static_cast<std::uint32_t>(hash >> 32), id, word_bytes_.size(),
                  static_cast<std::uint32_t>(word.size())};
    word_bytes_.insert(word_bytes_.end(), word.begin(), word.end());
  }
}

const Bpe::PairSlot& Bpe::find_pair(TokenId left, TokenId right) const {
  const std::uint64_t pair = pack(left, right);
  std::uint64_t at = mix(pair) & pair_mask_;
  while (pairs_[at].pair != pair && pairs_[at].pair != kNoPair) at = (at + 1) & pair_mask_;
  return pairs_[at];
}

TokenId Bpe::find_word(std::string_view piece, std::uint64_t hash) const {
  const auto high = static_cast<std::uint32_t>(hash >> 32);
  for (std::uint64_t at = hash & word_mask_; words_[at].id >= 0; at = (at + 1) & word_mask_) {
    const WordSlot& slot = words_[at];
    if (slot.hash == high && slot.size == piece.size() &&
        std::memcmp(word_bytes_.data() + slot.offset, piece.data(), piece.size()) == 0) {
      return slot.id;
    }
  }
  return -1;
}

void Bpe::encode_piece(std::string_view piece, std::vector<TokenId>& out) const {
  if (piece.empty()) return;
  if (piece.size() == 1) {
    out.push_back(byte_tokens_[static_cast<unsigned char>(piece[0])]);
    return;
  }
  const std::uint64_t hash = hash_bytes(piece);
  if (const TokenId id = find_word(piece, hash); id >= 0) {
    out.push_back(id);
    return;
  }
  if (piece.size() > CacheEntry::kMaxBytes) {
    merge_piece(piece, out);
    return;
  }
  CacheEntry& entry = thread_cache()[(hash ^ serial_) & (kCacheEntries - 1)];
  if (entry.serial == serial_ && entry.size == piece.size() &&
      std::memcmp(entry.bytes.data(), piece.data(), piece.size()) == 0) {
    out.insert(out.end(), entry.tokens.data(), entry.tokens.data() + entry.count);
    return;
  }
  const std::size_t before = out.size();
  merge_piece(piece, out);
  const std::size_t count = out.size() - before;
  if (count > CacheEntry::kMaxTokens) return;
  entry.serial = serial_;
  entry.size = static_cast<std::uint8_t>(piece.size());
  entry.count = static_cast<std::uint8_t>(count);
  std::copy_n(out.data() + before, count, entry.tokens.data());
  std::memcpy(entry.bytes.data(), piece.data(), piece.size());
}

void Bpe::merge_piece(std::string_view piece, std::vector<TokenId>& out) const {
  if (piece.size() <= kShortPiece) {
    merge_short(piece, out);
  } else {
    merge_long(piece, out);
  }
}

void Bpe::merge_short(std::string_view piece, std::vector<TokenId>& out) const {
  std::array<TokenId, kShortPiece> ids;
  std::array<std::uint32_t, kShortPiece> ranks;  // of the pair (i, i + 1)
  std::array<TokenId, kShortPiece> merged;       // what that pair becomes
  std::size_t n = piece.size();
  const auto rate = [&](std::size_t i) {
    const PairSlot& slot = find_pair(ids[i], ids[i + 1]);
    ranks[i] = slot.rank;
    merged[i] = slot.merged;
  };
  for (std::size_t i = 0; i < n; ++i) ids[i] = byte_tokens_[static_cast<unsigned char>(piece[i])];
  for (std::size_t i = 0; i + 1 < n; ++i) rate(i);
  while (n > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoRank) break;
    ids[best] = merged[best];
    for (std::size_t i = best + 1; i + 1 < n; ++i) {
      ids[i] = ids[i + 1];
      ranks[i] = ranks[i + 1];
      merged[i] = merged[i + 1];
    }
    --n;
    if (best > 0) rate(best - 1);
    if (best + 1 < n) rate(best);
  }
  out.insert(out.end(), ids.data(), ids.data() + n);
}

void Bpe::merge_long(std::string_view piece, std::vector<TokenId>& out) const {
  struct Node {
    TokenId id;
    TokenId merged;      // what (this, next) becomes
    std::uint32_t rank;  // of (this, next); kNoRank: no such merge, or the node is gone
    std::size_t previous, next;
  };
  struct Candidate {
    std::uint32_t rank;
    std::size_t at;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  const std::size_t n = piece.size();
  std::vector<Node> nodes(n);
  std::vector<Candidate> storage;
  storage.reserve(n);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>(),
                                                                               std::move(storage));
  const auto rate = [&](std::size_t i) {
    Node& node = nodes[i];
    node.rank = kNoRank;
    if (node.next == n) return;
    const PairSlot& slot = find_pair(node.id, nodes[node.next].id);
    if (slot.rank == kNoRank) return;
    node.rank = slot.rank;
    node.merged = slot.merged;
    queue.push({slot.rank, i});
  };
  for (std::size_t i = 0; i < n; ++i) {
    nodes[i] = {byte_tokens_[static_cast<unsigned char>(piece[i])], 0, kNoRank, i == 0 ? n : i - 1, i + 1};
  }
  for (std::size_t i = 0; i < n; ++i) rate(i);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Node& node = nodes[top.at];
    if (node.rank != top.rank) continue;  // an older state of this pair
    const std::size_t gone = node.next;
    nodes[gone].rank = kNoRank;
    node.id = node.merged;
    node.next = nodes[gone].next;
    if (node.next != n) nodes[node.next].previous = top.at;
    rate(top.at);
    if (node.previous != n) rate(node.previous);
  }
  for (std::size_t i = 0; i != n; i = nodes[i].next) out.push_back(nodes[i].id);
}

}  // namespace deepinfer
