#include "base/memory.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace deepinfer {
namespace {

std::optional<std::int64_t> number_in(const char* path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // no such file, or "max"
}

std::optional<std::int64_t> system_bytes() {
  std::ifstream info("/proc/meminfo");
  std::string label, unit;
  std::int64_t kib = 0;
  while (info >> label >> kib) {
    if (label == "MemAvailable:") return kib * 1024;
    std::getline(info, unit);
  }
  return std::nullopt;
}

// As a container sees its own group.
std::optional<std::int64_t> group_bytes() {
  const auto limit = number_in("/sys/fs/cgroup/memory.max");
  const auto used = number_in("/sys/fs/cgroup/memory.current");
  if (!limit || !used) return std::nullopt;
  // Page cache counts as used but gives way.
  std::ifstream stat("/sys/fs/cgroup/memory.stat");
  std::int64_t file_bytes = 0;
  std::string label;
  for (std::int64_t value = 0; stat >> label >> value;) {
    if (label == "file") file_bytes = value;
  }
  return std::max<std::int64_t>(0, *limit - *used + file_bytes);
}

}  // namespace

std::optional<std::int64_t> available_memory_bytes() {
  const auto system = system_bytes();
  const auto group = group_bytes();
  if (system && group) return std::min(*system, *group);
  return system ? system : group;
}

}  // namespace deepinfer
