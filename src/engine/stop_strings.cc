#include "engine/stop_strings.h"

#include <algorithm>

namespace deepinfer {

StopStrings::StopStrings(const std::vector<std::string>& stops) : stops_(stops) {
  for (const std::string& stop : stops_) longest_ = std::max(longest_, stop.size());
}

std::optional<StopStrings::Hit> StopStrings::find(std::string_view text, std::size_t from) const {
  std::optional<Hit> best;
  std::size_t best_end = 0;
  for (const std::string& stop : stops_) {
    const std::size_t start = from >= stop.size() ? from - stop.size() + 1 : 0;
    const std::size_t at = text.find(stop, start);
    if (at == std::string_view::npos) continue;
    const std::size_t end = at + stop.size();
    if (!best || end < best_end || (end == best_end && at < best->begin)) {
      best = Hit{at, &stop};
      best_end = end;
    }
  }
  return best;
}

std::size_t StopStrings::settled(std::string_view text) const {
  if (stops_.empty()) return text.size();
  std::size_t at = text.size() - std::min(text.size(), longest_ - 1);
  for (; at < text.size(); ++at) {
    const std::string_view tail = text.substr(at);
    const auto begins = [&](const std::string& stop) {
      return stop.size() > tail.size() && stop.starts_with(tail);
    };
    if (std::any_of(stops_.begin(), stops_.end(), begins)) break;
  }
  return at;
}

}  // namespace deepinfer
