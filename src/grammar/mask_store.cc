#include "grammar/mask_store.h"

#include <algorithm>

namespace deepinfer::grammar {

void TokenSet::add_to(std::uint32_t* mask) const {
  for (std::size_t w = 0; w < bits.size(); ++w) mask[w] |= bits[w];
  for (TokenId t : list) mask[static_cast<std::uint32_t>(t) >> 5] |= 1u << (t & 31);
}

LexerEntryPtr MaskStore::find_entry(const Key& key) {
  const std::scoped_lock lock(mutex_);
  const auto it = entries_.find(key);
  if (it == entries_.end()) return nullptr;
  it->second.last_use = ++clock_;
  return it->second.value;
}

TriePtr MaskStore::find_remainder(const Key& key) {
  const std::scoped_lock lock(mutex_);
  const auto it = remainders_.find(key);
  if (it == remainders_.end()) return nullptr;
  it->second.last_use = ++clock_;
  return it->second.value;
}

void MaskStore::put_entry(const Key& key, LexerEntryPtr entry) {
  const std::scoped_lock lock(mutex_);
  const std::size_t bytes = entry->memory_bytes() + 160;
  if (entries_.try_emplace(key, Slot<LexerEntryPtr>{std::move(entry), bytes, ++clock_}).second) charge(bytes);
}

TriePtr MaskStore::put_remainder(const Key& key, TriePtr trie) {
  const std::scoped_lock lock(mutex_);
  std::weak_ptr<const TokenTrie>& known = by_content_[trie->id()];
  std::size_t bytes = 160;
  if (TriePtr same = known.lock()) {
    trie = std::move(same);
  } else {
    known = trie;
    bytes += trie->memory_bytes();
  }
  if (remainders_.try_emplace(key, Slot<TriePtr>{trie, bytes, ++clock_}).second) charge(bytes);
  return trie;
}

// Past the budget, the half used longest ago goes. Whoever holds an entry keeps it alive.
void MaskStore::charge(std::size_t bytes) {
  used_bytes_ += bytes;
  if (used_bytes_ <= budget_bytes_) return;
  std::vector<std::uint64_t> uses;
  for (const auto& [k, slot] : entries_) uses.push_back(slot.last_use);
  for (const auto& [k, slot] : remainders_) uses.push_back(slot.last_use);
  std::nth_element(uses.begin(), uses.begin() + static_cast<std::ptrdiff_t>(uses.size() / 2), uses.end());
  const std::uint64_t cut = uses[uses.size() / 2];
  const auto drop = [&](auto& map) {
    std::erase_if(map, [&](const auto& item) {
      if (item.second.last_use >= cut) return false;
      used_bytes_ -= item.second.bytes;
      ++evictions_;
      return true;
    });
  };
  drop(entries_);
  drop(remainders_);
  std::erase_if(by_content_, [](const auto& item) { return item.second.expired(); });
}

std::size_t MaskStore::memory_bytes() const {
  const std::scoped_lock lock(mutex_);
  return used_bytes_;
}

std::size_t MaskStore::eviction_count() const {
  const std::scoped_lock lock(mutex_);
  return evictions_;
}

}  // namespace deepinfer::grammar
