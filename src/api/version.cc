#include "api/version.h"

#include <fmt/format.h>

namespace deepinfer {

std::string_view version() {
  return DI_VERSION;
}

std::string version_fingerprint() {
  return fmt::format("deepinfer-{}", version());
}

std::string build_description() {
#if defined(__x86_64__)
  constexpr const char* kArchitecture = "x86-64";
#elif defined(__aarch64__)
  constexpr const char* kArchitecture = "aarch64";
#else
  constexpr const char* kArchitecture = "unknown architecture";
#endif
#ifdef __OPTIMIZE__
  constexpr const char* kOptimised = "optimised";
#else
  constexpr const char* kOptimised = "not optimised";
#endif
#ifdef __clang__
  return fmt::format("clang {}, {}, {}", __clang_version__, kOptimised, kArchitecture);
#else
  return fmt::format("gcc {}, {}, {}", __VERSION__, kOptimised, kArchitecture);
#endif
}

}  // namespace deepinfer
