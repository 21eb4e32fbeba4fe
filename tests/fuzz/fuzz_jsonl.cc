// Any bytes as a line file: the reader's offsets and sizes account for every byte, and lines never pass the
// bound.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string_view>

#include "io/json.h"
#include "io/jsonl.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int fd = ::memfd_create("fuzz", 0);
  DI_CHECK(fd >= 0 && ::ftruncate(fd, 0) == 0);
  DI_CHECK(::pwrite(fd, data, size, 0) == static_cast<ssize_t>(size) && ::lseek(fd, 0, SEEK_SET) == 0);
  constexpr std::size_t kBound = 64;
  deepinfer::JsonlReader reader(fd, "fuzz", kBound, 16);  // small reads: many borders inside lines
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  std::int64_t number = 0;
  for (;;) {
    const auto next = reader.next();
    DI_CHECK(next.ok());
    if (!next->has_value()) break;
    const deepinfer::JsonlLine& line = **next;
    DI_CHECK(line.number == ++number);
    DI_CHECK(line.text.size() <= kBound && line.text.find('\n') == std::string_view::npos);
    DI_CHECK(line.too_long == (line.size_bytes > static_cast<std::int64_t>(kBound)));
    DI_CHECK(line.too_long || static_cast<std::int64_t>(line.text.size()) == line.size_bytes);
    DI_CHECK(all.substr(static_cast<std::size_t>(line.offset), line.text.size()) == line.text, "line ",
             number);
    DI_CHECK(line.terminated || reader.offset() == static_cast<std::int64_t>(size));
    const auto json = deepinfer::parse_json(line.text, {.max_bytes = kBound, .max_depth = 16});
    DI_CHECK(json.ok() || !json.error().message.empty());
  }
  DI_CHECK(reader.offset() == static_cast<std::int64_t>(size));
  return 0;
}
