#include "grammar/token_trie.h"

#include <xxhash.h>

#include <algorithm>

namespace deepinfer::grammar {

std::shared_ptr<const TokenTrie> TokenTrie::build(std::vector<std::pair<std::string_view, TokenId>> entries) {
  std::sort(entries.begin(), entries.end());
  entries.erase(std::unique(entries.begin(), entries.end()), entries.end());
  auto trie = std::make_shared<TokenTrie>();
  trie->tokens_.reserve(entries.size());
  std::vector<std::uint32_t> open;  // nodes on the path to the last string
  std::string_view previous;
  const auto close_to = [&](std::size_t depth) {
    while (open.size() > depth) {
      const std::uint32_t node = open.back();
      open.pop_back();
      trie->nodes_[node].subtree = static_cast<std::uint32_t>(trie->nodes_.size()) - node;
    }
  };
  for (const auto& [text, token] : entries) {
    std::size_t shared = 0;
    while (shared < previous.size() && shared < text.size() && previous[shared] == text[shared]) ++shared;
    close_to(shared);
    for (std::size_t i = shared; i < text.size(); ++i) {
      const auto byte = static_cast<std::uint8_t>(text[i]);
      open.push_back(static_cast<std::uint32_t>(trie->nodes_.size()));
      trie->nodes_.push_back(
          {1, static_cast<std::uint32_t>(trie->tokens_.size()), byte, static_cast<std::uint8_t>(i + 1), 0});
      if (i == 0) trie->first_bytes_.set(byte);
      trie->all_bytes_.set(byte);
    }
    trie->tokens_.push_back(token);
    previous = text;
  }
  close_to(0);
  trie->nodes_.push_back({0, static_cast<std::uint32_t>(trie->tokens_.size()), 0, 0, 0});
  trie->nodes_.shrink_to_fit();
  const std::uint64_t seed = XXH3_64bits(trie->tokens_.data(), trie->tokens_.size() * sizeof(TokenId));
  trie->id_ = XXH3_64bits_withSeed(trie->nodes_.data(), trie->nodes_.size() * sizeof(Node), seed);
  return trie;
}

}  // namespace deepinfer::grammar
