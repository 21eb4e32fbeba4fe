// Errors as values. An Error belongs to one request, file or flag: it says what is wrong, where, and what
// to do about it. Programmer errors go through DI_CHECK (check.h) instead.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace deepinfer {

enum class ErrorCode {
  kInvalidArgument,  // the caller's value is wrong; the same call will fail again
  kNotFound,         // a file, tensor, model or id does not exist
  kCorrupt,          // a file's contents contradict themselves or its format
  kUnsupported,      // well-formed, but a feature that is not there
  kOutOfMemory,      // host or device memory, or cache blocks
  kIo,               // the operating system refused: disk full, permission, closed pipe
  kCancelled,        // the client or the user stopped it
  kDeadline,         // a time or fuel limit was reached
  kInternal,         // a broken invariant noticed at run time
};

/// Lower-case snake name of the code, e.g. "invalid_argument"; stable, used in result files.
const char* error_code_name(ErrorCode code);

/// What went wrong. `where` is a place (file, line number, JSON pointer, tensor name) and may be empty.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::string where;

  /// "where: message", or the message alone.
  std::string to_string() const;
  /// The same error seen from further out: `place` goes before the present place.
  Error at(std::string place) const;
};

inline Error invalid_argument(std::string message, std::string where = {}) {
  return {ErrorCode::kInvalidArgument, std::move(message), std::move(where)};
}
inline Error not_found(std::string message, std::string where = {}) {
  return {ErrorCode::kNotFound, std::move(message), std::move(where)};
}
inline Error corrupt(std::string message, std::string where = {}) {
  return {ErrorCode::kCorrupt, std::move(message), std::move(where)};
}
inline Error unsupported(std::string message, std::string where = {}) {
  return {ErrorCode::kUnsupported, std::move(message), std::move(where)};
}
/// kIo with the text of `errno_value` appended.
Error io_error(std::string message, int errno_value, std::string where = {});

/// Either a T or an Error. [[nodiscard]]: an ignored failure is a compile error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    DI_CHECK(ok(), "value() of a failed Result: ", error().to_string());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    DI_CHECK(ok(), "value() of a failed Result: ", error().to_string());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    DI_CHECK(ok(), "value() of a failed Result: ", error().to_string());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const {
    DI_CHECK(!ok(), "error() of a Result that succeeded");
    return *std::get_if<1>(&state_);
  }

 private:
  std::variant<T, Error> state_;
};

/// Success, or an Error. `return Status();` or `return {};` is success.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}  // NOLINT: implicit by design
  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    DI_CHECK(error_.has_value(), "error() of a Status that succeeded");
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

}  // namespace deepinfer

#define DI_CONCAT_INNER_(a, b) a##b
#define DI_CONCAT_(a, b) DI_CONCAT_INNER_(a, b)

/// Returns the error of a Status or Result expression from the enclosing function.
#define DI_TRY(expr)                                                                       \
  do {                                                                                     \
    if (auto di_try_result_ = (expr); !di_try_result_.ok()) return di_try_result_.error(); \
  } while (0)

/// DI_ASSIGN(auto x, make()): x = value, or return the error.
#define DI_ASSIGN(lhs, expr) DI_ASSIGN_INNER_(DI_CONCAT_(di_assign_, __LINE__), lhs, expr)
#define DI_ASSIGN_INNER_(tmp, lhs, expr) \
  auto tmp = (expr);                     \
  if (!tmp.ok()) return tmp.error();     \
  lhs = std::move(tmp).value()
