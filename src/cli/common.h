// What all subcommands share: exit codes and the one way to report an error.
#pragma once

#include "base/result.h"

namespace deepinfer::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;      ///< the command itself failed
inline constexpr int kExitUsage = 2;       ///< the command line is wrong
inline constexpr int kExitSomeFailed = 3;  ///< it ran to its end, but some of its items failed
inline constexpr int kExitInterrupted =
    4;  ///< stopped by a signal; what is written is whole and can be resumed

/// Prints "deepinfer: error: where: message" to stderr and returns kExitFailed.
int report(const Error& error);

/// Whether stderr is a terminal (progress lines are redrawn there).
bool stderr_is_terminal();

}  // namespace deepinfer::cli
