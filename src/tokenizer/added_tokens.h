// Finds added tokens (control markers) in text, the longest at the leftmost place.
// Immutable after creation; any thread. Cost: one table look-up a byte, more at bytes some token begins with.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "deepinfer/types.h"

namespace deepinfer {

class AddedTokenMatcher {
 public:
  /// Adds a token; `text` must not be empty. The last of equal texts wins.
  void add(std::string_view text, TokenId id);

  struct Match {
    std::size_t begin = 0, end = 0;  ///< bytes; begin == npos: none
    TokenId id = -1;
  };
  /// The first match at or after `from`; {npos, npos, -1} without one.
  Match find(std::string_view text, std::size_t from) const;

  bool empty() const { return nodes_.size() == 1; }

 private:
  struct Node {
    TokenId id = -1;
    std::vector<std::pair<unsigned char, std::uint32_t>> children;
  };
  std::uint32_t child(std::uint32_t node, unsigned char byte) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::array<bool, 256> first_bytes_{};
};

}  // namespace deepinfer
