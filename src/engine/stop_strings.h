// Stop strings over a growing text. The answer ends before the stop string that is complete first (of two
// that complete at the same byte, the longer); this does not depend on where token borders lie. Text that may
// still become part of a stop string is withheld. Stateless but for the list: the text itself is the state,
// so rollback is free. Cost: O(new bytes * total length of the stop strings) in the worst case, usually one
// memchr per string.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

class StopStrings {
 public:
  StopStrings() = default;
  explicit StopStrings(const std::vector<std::string>& stops);

  struct Hit {
    std::size_t begin = 0;  ///< the text ends here
    const std::string* stop = nullptr;
  };
  /// The first stop string complete in text[from ..]; everything that ends at or before `from` was searched
  /// before.
  std::optional<Hit> find(std::string_view text, std::size_t from) const;
  /// How much of the text can no longer become part of a stop string: its length, less the longest suffix
  /// that begins one.
  std::size_t settled(std::string_view text) const;
  bool empty() const { return stops_.empty(); }

 private:
  std::vector<std::string> stops_;
  std::size_t longest_ = 0;
};

}  // namespace deepinfer
