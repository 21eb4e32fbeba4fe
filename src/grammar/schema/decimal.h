// Exact decimal numbers: what a JSON number says, never rounded to a double. A value is
// sign * digits * 10^exponent with no leading or trailing zero in `digits`; zero has no digits at all, so
// equal numbers have equal fields ("1.0" and "1" are the same value, "-0" is zero).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace deepinfer::schema {

struct Decimal {
  bool negative = false;
  std::string digits;
  std::int64_t exponent = 0;

  bool is_zero() const { return digits.empty(); }
  bool is_integer() const { return exponent >= 0; }
  Decimal negated() const;
  /// Plain notation without an exponent: "-0.05", "1200".
  std::string to_string() const;
  bool operator==(const Decimal&) const = default;
};

/// Largest |exponent| and digit count a Decimal may have; text beyond it is refused by parse_decimal.
inline constexpr std::int64_t kMaxDecimalDigits = 2000;

/// Parses RFC 8259 number syntax; nothing when the text is no number or beyond kMaxDecimalDigits.
std::optional<Decimal> parse_decimal(std::string_view text);
Decimal decimal_from_int(std::int64_t value);

/// -1, 0 or 1.
int compare(const Decimal& a, const Decimal& b);

/// The value as an int64 when it is an integer that fits.
std::optional<std::int64_t> to_int64(const Decimal& value);

/// Whether `value` is an integral multiple of `step` (> 0); nothing when the digits are too many to tell
/// cheaply.
std::optional<bool> is_multiple_of(const Decimal& value, const Decimal& step);

}  // namespace deepinfer::schema
