#include "io/problem_list.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer {

void ProblemList::add(const std::string& kind, std::string line) {
  auto at = std::find_if(kinds_.begin(), kinds_.end(), [&kind](const Kind& k) { return k.name == kind; });
  if (at == kinds_.end()) at = kinds_.insert(kinds_.end(), Kind{kind, {}, 0});
  ++at->count;
  if (at->lines.size() < shown_per_kind_) at->lines.push_back(std::move(line));
}

Error ProblemList::error(ErrorCode code, const std::string& headline, std::string where) const {
  std::string text = headline;
  const auto put = [&text](const std::string& line) { text += (text.empty() ? "" : "\n  ") + line; };
  for (const Kind& kind : kinds_) {
    for (const std::string& line : kind.lines) put(line);
    if (kind.count > kind.lines.size())
      put(fmt::format("... and {} more {}", kind.count - kind.lines.size(), kind.name));
  }
  return {code, std::move(text), std::move(where)};
}

}  // namespace deepinfer
