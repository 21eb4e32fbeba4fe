#include "base/result.h"

#include <cstring>

namespace deepinfer {

const char* error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kOutOfMemory:
      return "out_of_memory";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kDeadline:
      return "deadline";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "internal";
}

std::string Error::to_string() const {
  return where.empty() ? message : where + ": " + message;
}

Error Error::at(std::string place) const {
  Error outer = *this;
  outer.where = where.empty() ? std::move(place) : place + ": " + where;
  return outer;
}

Error io_error(std::string message, int errno_value, std::string where) {
  return {ErrorCode::kIo, std::move(message) + ": " + std::strerror(errno_value), std::move(where)};
}

}  // namespace deepinfer
