// How much memory this process could still take.
#pragma once

#include <cstdint>
#include <optional>

namespace deepinfer {

/// What the system could give without swapping, also within the limit of this process's control group; absent
/// where neither says. Reads /proc and /sys at every call.
std::optional<std::int64_t> available_memory_bytes();

}  // namespace deepinfer
