// SIGINT and SIGTERM as a flag.
#pragma once

#include <atomic>

namespace deepinfer::cli {

/// From now on the first SIGINT or SIGTERM sets the returned flag; a second one ends the process at once.
const std::atomic<bool>& catch_stop_signals();
/// Takes the flag back: an interactive command has dealt with it.
void clear_stop_signal();

}  // namespace deepinfer::cli
