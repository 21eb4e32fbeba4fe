#include "cli/signals.h"

#include <unistd.h>

#include <csignal>

namespace deepinfer::cli {
namespace {

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "used in a signal handler");

void on_signal(int signal) {
  if (stop_requested.exchange(true)) ::_exit(128 + signal);
}

}  // namespace

const std::atomic<bool>& catch_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  return stop_requested;
}

void clear_stop_signal() {
  stop_requested = false;
}

}  // namespace deepinfer::cli
