#include "cli/common.h"

#include <unistd.h>

#include <cstdio>

namespace deepinfer::cli {

int report(const Error& error) {
  std::fprintf(stderr, "deepinfer: error: %s\n", error.to_string().c_str());
  return kExitFailed;
}

bool stderr_is_terminal() {
  return isatty(STDERR_FILENO) == 1;
}

}  // namespace deepinfer::cli
