#include "cli/common.h"

#include <unistd.h>

#include <cctype>
#include <charconv>
#include <cstdio>
#include <string>

namespace deepinfer::cli {

int report(const Error& error) {
  std::fprintf(stderr, "deepinfer: error: %s\n", error.to_string().c_str());
  return kExitFailed;
}

Result<std::int64_t> parse_size(std::string_view text) {
  const Error error = invalid_argument("expected a size such as 140GiB", "\"" + std::string(text) + "\"");
  double number = 0;
  const auto [rest, code] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (code != std::errc() || !(number >= 0)) return error;
  std::string unit;
  for (const char* c = rest; c != text.data() + text.size(); ++c) {
    if (*c != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
  }
  if (unit == "b") unit.clear();
  if (!unit.empty()) {
    const std::size_t power = std::string_view("kmgt").find(unit.front());
    if (power == std::string_view::npos) return error;
    const std::string tail = unit.substr(1);
    if (!tail.empty() && tail != "ib" && tail != "b") return error;
    for (std::size_t i = 0; i <= power; ++i) number *= tail == "b" ? 1000.0 : 1024.0;
  }
  if (number >= 9e18) return error;
  return static_cast<std::int64_t>(number);
}

bool stderr_is_terminal() {
  return isatty(STDERR_FILENO) == 1;
}

}  // namespace deepinfer::cli
