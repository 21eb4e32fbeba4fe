// Gathers everything that is wrong with a file or folder, so that one run shows all of it. Problems come in
// kinds, and each kind is cut after a number of lines so that one kind cannot hide the others. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace deepinfer {

class ProblemList {
 public:
  /// `shown_per_kind`: lines of one kind that the error prints.
  explicit ProblemList(std::size_t shown_per_kind) : shown_per_kind_(shown_per_kind) {}

  /// `kind` is a plural noun phrase, as in "... and 12 more missing tensors". Kinds keep the order of first
  /// use.
  void add(const std::string& kind, std::string line);
  bool empty() const { return kinds_.empty(); }
  /// `headline` (may be empty), then one indented line a problem.
  Error error(ErrorCode code, const std::string& headline, std::string where) const;

 private:
  struct Kind {
    std::string name;
    std::vector<std::string> lines;
    std::size_t count = 0;
  };
  std::size_t shown_per_kind_;
  std::vector<Kind> kinds_;
};

}  // namespace deepinfer
