// Assertions on our own logic. They stay on in release builds: a broken invariant must stop the process
// with a name and a line rather than produce wrong tokens. User mistakes are Errors (result.h), never checks.
#pragma once

#include <sstream>
#include <string>

namespace deepinfer {

/// Prints "file:line: check failed: condition: detail" to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& detail);

namespace internal {
template <class... Parts>
std::string check_message(const Parts&... parts) {
  std::ostringstream out;
  static_cast<void>((out << ... << parts));
  return out.str();
}
}  // namespace internal
}  // namespace deepinfer

/// DI_CHECK(condition, parts...): the parts are printed one after the other on failure only.
#define DI_CHECK(condition, ...)                                                    \
  do {                                                                              \
    if (!(condition)) [[unlikely]]                                                  \
      ::deepinfer::check_failed(__FILE__, __LINE__, #condition,                     \
                                ::deepinfer::internal::check_message(__VA_ARGS__)); \
  } while (0)

/// A check too costly for release builds (inner loops).
#ifdef NDEBUG
#define DI_DCHECK(condition, ...) \
  do {                            \
  } while (0)
#else
#define DI_DCHECK(condition, ...) DI_CHECK(condition, __VA_ARGS__)
#endif
