#include "tokenizer/added_tokens.h"

#include "base/check.h"

namespace deepinfer {

std::uint32_t AddedTokenMatcher::child(std::uint32_t node, unsigned char byte) const {
  for (const auto& [b, next] : nodes_[node].children) {
    if (b == byte) return next;
  }
  return 0;  // the root is nobody's child
}

void AddedTokenMatcher::add(std::string_view text, TokenId id) {
  DI_CHECK(!text.empty(), "an added token needs text");
  first_bytes_[static_cast<unsigned char>(text[0])] = true;
  std::uint32_t node = 0;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    std::uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<std::uint32_t>(nodes_.size());
      nodes_.emplace_back();
      nodes_[node].children.emplace_back(byte, next);
    }
    node = next;
  }
  nodes_[node].id = id;
}

AddedTokenMatcher::Match AddedTokenMatcher::find(std::string_view text, std::size_t from) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!first_bytes_[static_cast<unsigned char>(text[begin])]) continue;
    Match match;
    std::uint32_t node = 0;
    for (std::size_t at = begin; at < text.size(); ++at) {
      node = child(node, static_cast<unsigned char>(text[at]));
      if (node == 0) break;
      if (nodes_[node].id >= 0) match = {begin, at + 1, nodes_[node].id};
    }
    if (match.id >= 0) return match;
  }
  return {std::string_view::npos, std::string_view::npos, -1};
}

}  // namespace deepinfer
