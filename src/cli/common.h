// What all subcommands share: exit codes and the one way to report an error.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace deepinfer::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;       ///< the command itself failed
inline constexpr int kExitUsage = 2;        ///< the command line is wrong
inline constexpr int kExitSomeFailed = 3;   ///< it ran to its end, but some of its items failed
inline constexpr int kExitInterrupted = 4;  ///< stopped by a signal; can be resumed

/// Prints "deepinfer: error: where: message" to stderr and returns kExitFailed.
int report(const Error& error);

/// Whether stderr is a terminal (progress lines are redrawn there).
bool stderr_is_terminal();

/// "140GiB", "1.5 GB", "4096": a number of bytes with an optional unit (B, kB, MB, GB, TB in powers of 1000;
/// KiB, MiB, GiB, TiB in powers of 1024; K, M, G, T as the latter).
Result<std::int64_t> parse_size(std::string_view text);

}  // namespace deepinfer::cli
