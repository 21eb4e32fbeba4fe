// Element types as they lie in checkpoint files. Pure functions, callable from any thread; conversions
// between the types live in float_formats.h and quantize.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace deepinfer {

/// One value a stored element. Packed FP4 has no type of its own: files keep it as kI8, two values a byte.
enum class DType : std::uint8_t {
  kF32,
  kBF16,
  kF16,
  kF64,
  kI64,
  kI32,
  kI16,
  kI8,
  kU8,
  kBool,
  kF8E4M3,  // OCP e4m3fn: no infinity, 0x7f and 0xff are NaN, largest value 448
  kF8E8M0,  // a power of two 2^(byte-127), 255 is NaN; used for block scales
};
inline constexpr int kDTypeCount = 12;

/// The spelling used by safetensors headers: "F32", "BF16", "F8_E4M3", ...
std::string_view dtype_name(DType dtype);

/// The inverse of dtype_name; nothing for a spelling this engine does not know. Case matters.
std::optional<DType> parse_dtype(std::string_view name);

/// Bytes an element.
std::size_t dtype_size_bytes(DType dtype);

}  // namespace deepinfer
