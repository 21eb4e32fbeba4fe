#include "grammar/schema/decimal.h"

#include <algorithm>
#include <limits>

namespace deepinfer::schema {
namespace {

void normalise(Decimal& d) {
  const std::size_t first = d.digits.find_first_not_of('0');
  if (first == std::string::npos) {
    d = Decimal{};
    return;
  }
  d.digits.erase(0, first);
  while (d.digits.back() == '0') {
    d.digits.pop_back();
    ++d.exponent;
  }
}

// Magnitudes only; both non-zero.
int compare_magnitude(const Decimal& a, const Decimal& b) {
  const std::int64_t top_a = static_cast<std::int64_t>(a.digits.size()) + a.exponent;
  const std::int64_t top_b = static_cast<std::int64_t>(b.digits.size()) + b.exponent;
  if (top_a != top_b) return top_a < top_b ? -1 : 1;
  // Aligned at the first digit, so lexicographic order decides, a missing digit being zero.
  const int order = a.digits.compare(b.digits);
  return order < 0 ? -1 : order > 0 ? 1 : 0;
}

}  // namespace

Decimal Decimal::negated() const {
  Decimal out = *this;
  if (!out.is_zero()) out.negative = !out.negative;
  return out;
}

std::string Decimal::to_string() const {
  if (is_zero()) return "0";
  std::string out = negative ? "-" : "";
  const auto count = static_cast<std::int64_t>(digits.size());
  if (exponent >= 0) return out + digits + std::string(static_cast<std::size_t>(exponent), '0');
  const std::int64_t point = count + exponent;
  if (point > 0) {
    const auto split = static_cast<std::size_t>(point);
    return out + digits.substr(0, split) + "." + digits.substr(split);
  }
  return out + "0." + std::string(static_cast<std::size_t>(-point), '0') + digits;
}

std::optional<Decimal> parse_decimal(std::string_view text) {
  Decimal out;
  std::size_t i = 0;
  const auto is_digit = [&] { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
  if (i < text.size() && text[i] == '-') {
    out.negative = true;
    ++i;
  }
  if (!is_digit()) return std::nullopt;
  const bool leading_zero = text[i] == '0';
  const std::size_t start = i;
  while (is_digit()) out.digits += text[i++];
  if (leading_zero && i - start > 1) return std::nullopt;
  if (i < text.size() && text[i] == '.') {
    ++i;
    if (!is_digit()) return std::nullopt;
    while (is_digit()) {
      out.digits += text[i++];
      --out.exponent;
    }
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    bool minus = false;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) minus = text[i++] == '-';
    if (!is_digit()) return std::nullopt;
    std::int64_t exponent = 0;
    while (is_digit()) exponent = std::min<std::int64_t>(exponent * 10 + (text[i++] - '0'), 1'000'000'000);
    out.exponent += minus ? -exponent : exponent;
  }
  if (i != text.size()) return std::nullopt;
  normalise(out);
  if (static_cast<std::int64_t>(out.digits.size()) > kMaxDecimalDigits || out.exponent > kMaxDecimalDigits ||
      out.exponent < -kMaxDecimalDigits) {
    return std::nullopt;
  }
  return out;
}

Decimal decimal_from_int(std::int64_t value) {
  Decimal out;
  const bool negative = value < 0;
  const std::uint64_t magnitude =
      negative ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value);
  out.digits = std::to_string(magnitude);
  out.negative = negative;
  normalise(out);
  return out;
}

int compare(const Decimal& a, const Decimal& b) {
  const int sign_a = a.is_zero() ? 0 : a.negative ? -1 : 1;
  const int sign_b = b.is_zero() ? 0 : b.negative ? -1 : 1;
  if (sign_a != sign_b) return sign_a < sign_b ? -1 : 1;
  if (sign_a == 0) return 0;
  return sign_a * compare_magnitude(a, b);
}

std::optional<std::int64_t> to_int64(const Decimal& value) {
  if (value.is_zero()) return 0;
  if (!value.is_integer() || static_cast<std::int64_t>(value.digits.size()) + value.exponent > 18)
    return std::nullopt;
  std::int64_t out = 0;
  for (const char c : value.digits) out = out * 10 + (c - '0');
  for (std::int64_t i = 0; i < value.exponent; ++i) out *= 10;
  return value.negative ? -out : out;
}

std::optional<bool> is_multiple_of(const Decimal& value, const Decimal& step) {
  if (value.is_zero()) return true;
  // value / step is integral when digits_v * 10^(ev-e) is divisible by digits_s * 10^(es-e), e the lower
  // exponent.
  const std::int64_t low = std::min(value.exponent, step.exponent);
  if (static_cast<std::int64_t>(step.digits.size()) + (step.exponent - low) > 17) return std::nullopt;
  std::int64_t modulus = 0;
  for (const char c : step.digits) modulus = modulus * 10 + (c - '0');
  for (std::int64_t i = low; i < step.exponent; ++i) modulus *= 10;
  __extension__ using Wide = unsigned __int128;
  Wide rest = 0;
  for (const char c : value.digits)
    rest = (rest * 10 + static_cast<unsigned>(c - '0')) % static_cast<Wide>(modulus);
  for (std::int64_t i = low; i < value.exponent; ++i) rest = rest * 10 % static_cast<Wide>(modulus);
  return rest == 0;
}

}  // namespace deepinfer::schema
