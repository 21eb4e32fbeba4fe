#include "grammar/schema/number_language.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

namespace deepinfer::schema {
namespace {

using grammar::ByteSet;
using grammar::kUnbounded;
using grammar::RegexId;
using grammar::RegexPool;

constexpr std::int64_t kMaxListed = 1000;  // values a range is spelled out for

class NumberWriter {
 public:
  NumberWriter(RegexPool& pool, const NumberBranch& branch, const SchemaOptions& options)
      : pool_(pool),
        branch_(branch),
        digit_(pool.bytes(ByteSet::range('0', '9'))),
        zero_(pool.byte('0')),
        nonzero_(pool.bytes(ByteSet::range('1', '9'))),
        point_(pool.byte('.')) {
    integer_digits_ =
        options.max_integer_digits <= 0 ? kUnbounded : static_cast<std::uint32_t>(options.max_integer_digits);
    fraction_digits_ = options.max_fraction_digits <= 0
                           ? kUnbounded
                           : static_cast<std::uint32_t>(options.max_fraction_digits);
    const auto widen = [&](const Decimal& d) {
      const auto whole = static_cast<std::int64_t>(d.digits.size()) + d.exponent;
      if (integer_digits_ != kUnbounded && whole + 1 > integer_digits_)
        integer_digits_ = static_cast<std::uint32_t>(whole + 1);
      if (fraction_digits_ != kUnbounded && -d.exponent + 1 > fraction_digits_) {
        fraction_digits_ = static_cast<std::uint32_t>(-d.exponent + 1);
      }
    };
    if (branch.low) widen(*branch.low);
    if (branch.high) widen(*branch.high);
    for (const Decimal& d : branch.excluded) widen(d);
  }

  Result<RegexId> write() {
    const bool low_is_sign = !branch_.low || branch_.low->is_zero();
    const bool only_sign = low_is_sign && !branch_.high;
    const bool plain = branch_.multiples.empty() && branch_.non_multiples.empty() && branch_.excluded.empty();
    const bool fraction = branch_.integral == NumberBranch::Integral::kFraction;
    if (plain && only_sign && !branch_.low_open && !fraction) return with_exponent();
    if (branch_.low && branch_.high && compare(*branch_.low, *branch_.high) == 0)
      return constant(*branch_.low);
    if (const auto values = list_values()) {
      std::vector<RegexId> choices;
      for (const std::int64_t value : *values) choices.push_back(constant(decimal_from_int(value)));
      return pool_.alt(choices);
    }

    const RegexId magnitude = this->magnitude();
    const Decimal zero;
    std::vector<RegexId> choices;
    // From zero up, and below zero by magnitude.
    const bool has_zero = admits(zero) && !fraction;
    if (!branch_.high || !branch_.high->negative) {
      std::vector<RegexId> parts{magnitude};
      if (branch_.low && !branch_.low->negative) parts.push_back(at_least(*branch_.low, branch_.low_open));
      if (branch_.high) parts.push_back(pool_.complement(at_least(*branch_.high, !branch_.high_open)));
      choices.push_back(pool_.all_of(parts));
    }
    if (!branch_.low || branch_.low->negative) {
      std::vector<RegexId> parts{magnitude};
      if (branch_.high && branch_.high->negative)
        parts.push_back(at_least(branch_.high->negated(), branch_.high_open));
      else
        parts.push_back(at_least(zero, !has_zero));
      if (branch_.low) parts.push_back(pool_.complement(at_least(branch_.low->negated(), !branch_.low_open)));
      choices.push_back(pool_.concat(pool_.byte('-'), pool_.all_of(parts)));
    } else if (has_zero) {
      choices.push_back(pool_.concat(pool_.byte('-'), spell(zero)));
    }
    std::vector<RegexId> parts{pool_.alt(choices)};
    const RegexId sign = pool_.optional(pool_.byte('-'));
    for (const Decimal& step : branch_.multiples) {
      DI_ASSIGN(const RegexId multiple, multiple_of(step));
      parts.push_back(pool_.concat(sign, multiple));
    }
    for (const Decimal& step : branch_.non_multiples) {
      DI_ASSIGN(const RegexId multiple, multiple_of(step));
      parts.push_back(pool_.complement(pool_.concat(sign, multiple)));
    }
    for (const Decimal& value : branch_.excluded) parts.push_back(pool_.complement(constant(value)));
    return pool_.all_of(parts);
  }

 private:
  RegexId repeat(RegexId x, std::uint32_t min, std::uint32_t max) {
    return pool_.repeat(x, min, std::max(min, max));
  }
  RegexId any_digits(std::uint32_t least = 0) { return pool_.repeat(digit_, least); }

  bool admits(const Decimal& value) const {
    if (branch_.low) {
      const int order = compare(value, *branch_.low);
      if (order < 0 || (order == 0 && branch_.low_open)) return false;
    }
    if (branch_.high) {
      const int order = compare(value, *branch_.high);
      if (order > 0 || (order == 0 && branch_.high_open)) return false;
    }
    return true;
  }

  // The values of a short range of multiples, one by one: cheaper than remainders and bounds at once.
  std::optional<std::vector<std::int64_t>> list_values() const {
    if ((branch_.multiples.empty() && branch_.non_multiples.empty()) || !branch_.low || !branch_.high)
      return std::nullopt;
    std::int64_t step = 0;
    if (branch_.integral == NumberBranch::Integral::kInteger) step = 1;
    for (const Decimal& multiple : branch_.multiples) {
      if (const auto whole = to_int64(multiple)) step = std::max(step, *whole);
    }
    const auto bound = [](const Decimal& d) -> std::optional<std::int64_t> {
      if (d.is_integer()) return to_int64(d);
      const std::string text = d.to_string();  // cut off the fraction: towards zero
      const auto cut = parse_decimal(text.substr(0, text.find('.')));
      return cut ? to_int64(*cut) : std::nullopt;
    };
    const auto low = bound(*branch_.low), high = bound(*branch_.high);
    constexpr std::int64_t kFar = std::int64_t{1} << 60;
    if (step == 0 || !low || !high || *low < -kFar || *high > kFar || (*high - *low) / step > kMaxListed)
      return std::nullopt;
    std::vector<std::int64_t> out;
    for (std::int64_t v = *low / step * step - step; v <= *high + step; v += step) {
      const Decimal value = decimal_from_int(v);
      const auto divides = [&](const Decimal& d) { return is_multiple_of(value, d).value_or(false); };
      const bool held =
          admits(value) && std::all_of(branch_.multiples.begin(), branch_.multiples.end(), divides) &&
          std::none_of(branch_.non_multiples.begin(), branch_.non_multiples.end(), divides) &&
          std::find(branch_.excluded.begin(), branch_.excluded.end(), value) == branch_.excluded.end();
      if (held) out.push_back(v);
    }
    return out;
  }

  RegexId whole() {
    const std::uint32_t more = integer_digits_ == kUnbounded ? kUnbounded : integer_digits_ - 1;
    return pool_.alt({zero_, pool_.concat(nonzero_, repeat(digit_, 0, more))});
  }
  RegexId fraction(RegexId digits) { return pool_.concat(point_, digits); }
  RegexId zeros() {
    return branch_.plain ? grammar::kEpsilonRegex
                         : pool_.optional(fraction(repeat(zero_, 1, fraction_digits_)));
  }

  // A number without sign and exponent, integral as the branch asks.
  RegexId magnitude() {
    const RegexId digits = repeat(digit_, 1, fraction_digits_);
    switch (branch_.integral) {
      case NumberBranch::Integral::kInteger:
        return pool_.concat(whole(), zeros());
      case NumberBranch::Integral::kFraction:
        return pool_.concat(
            whole(), fraction(pool_.all_of({digits, pool_.concat({any_digits(), nonzero_, any_digits()})})));
      case NumberBranch::Integral::kEither:
        break;
    }
    return pool_.concat(whole(), pool_.optional(fraction(digits)));
  }

  RegexId with_exponent() {
    const bool integer = branch_.integral == NumberBranch::Integral::kInteger;
    const std::uint32_t most =
        integer_digits_ == kUnbounded ? kUnbounded : 2;  // 99 and 40 digits stay within a double
    const RegexId exponent = pool_.concat({pool_.bytes(ByteSet::any_of("eE")),
                                           pool_.optional(pool_.bytes(ByteSet::any_of(integer ? "+" : "+-"))),
                                           repeat(digit_, 1, most)});
    const RegexId body = branch_.plain ? magnitude() : pool_.concat(magnitude(), pool_.optional(exponent));
    if (!branch_.low) return pool_.concat(pool_.optional(pool_.byte('-')), body);
    return pool_.alt({body, pool_.concat(pool_.byte('-'), spell(Decimal{}))});
  }

  // One magnitude, with any number of closing zeros.
  RegexId spell(const Decimal& value) {
    std::string text = value.to_string();
    if (value.negative) text.erase(0, 1);
    const std::size_t dot = text.find('.');
    if (dot == std::string::npos) return pool_.concat(pool_.literal(text), zeros());
    const auto used = static_cast<std::uint32_t>(text.size() - dot - 1);
    const std::uint32_t more =
        fraction_digits_ == kUnbounded ? kUnbounded : fraction_digits_ - std::min(used, fraction_digits_);
    return pool_.concat(pool_.literal(text), repeat(zero_, 0, more));
  }
  RegexId constant(const Decimal& value) {
    if (value.negative) return pool_.concat(pool_.byte('-'), spell(value));
    if (value.is_zero()) return pool_.concat(pool_.optional(pool_.byte('-')), spell(value));
    return spell(value);
  }

  // Magnitudes >= bound (> bound when open), for bound >= 0; spellings as in magnitude(), digit counts aside.
  RegexId at_least(const Decimal& bound, bool open) {
    const std::string text = bound.to_string();
    const std::size_t dot = text.find('.');
    const std::string whole = text.substr(0, dot);
    const std::string part = dot == std::string::npos ? "" : text.substr(dot + 1);
    const RegexId tail = pool_.optional(fraction(any_digits(1)));
    std::vector<RegexId> choices;
    // More digits before the point, or the same number and larger at the first difference.
    const auto longer = static_cast<std::uint32_t>(whole == "0" ? 0 : whole.size());
    choices.push_back(pool_.concat({nonzero_, any_digits(longer), tail}));
    if (whole != "0") {
      for (std::size_t i = 0; i < whole.size(); ++i) {
        if (whole[i] == '9') continue;
        const auto rest = static_cast<std::uint32_t>(whole.size() - i - 1);
        choices.push_back(pool_.concat(
            {pool_.literal(whole.substr(0, i)), above(whole[i]), pool_.repeat(digit_, rest, rest), tail}));
      }
    }
    // The same digits before the point: the fraction decides.
    std::vector<RegexId> fractions;
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (part[i] != '9')
        fractions.push_back(pool_.concat({pool_.literal(part.substr(0, i)), above(part[i]), any_digits()}));
    }
    if (open)
      fractions.push_back(pool_.concat({pool_.literal(part), pool_.star(zero_), nonzero_, any_digits()}));
    else
      fractions.push_back(part.empty() ? any_digits(1) : pool_.concat(pool_.literal(part), any_digits()));
    RegexId equal = fraction(pool_.alt(fractions));
    if (!open && part.empty()) equal = pool_.optional(equal);
    choices.push_back(pool_.concat(pool_.literal(whole), equal));
    return pool_.alt(choices);
  }
  RegexId above(char digit) {
    return pool_.bytes(ByteSet::range(static_cast<std::uint8_t>(digit + 1), static_cast<std::uint8_t>('9')));
  }

  Result<RegexId> multiple_of(const Decimal& step) {
    // step = p / 10^k; an integral number is a multiple of it exactly when it is one of p / gcd(p, 10^k).
    std::uint64_t p = 0;
    std::uint32_t k = 0;
    const bool small = step.digits.size() <= 15 && step.exponent <= 5 && step.exponent >= -15;
    if (small) {
      for (const char c : step.digits) p = p * 10 + static_cast<std::uint64_t>(c - '0');
      for (std::int64_t i = 0; i < step.exponent; ++i) p *= 10;
      if (step.exponent < 0) k = static_cast<std::uint32_t>(-step.exponent);
      if (branch_.integral == NumberBranch::Integral::kInteger) {
        std::uint64_t power = 1;
        for (; k > 0; --k) power *= 10;
        p /= std::gcd(p, power);
      }
    }
    if (!small || p > RegexPool::kMaxModulus) {
      return unsupported("a multiple of " + step.to_string() + " has too many remainders to count (limit " +
                         std::to_string(RegexPool::kMaxModulus) + ")");
    }
    return pool_.decimal_multiple(static_cast<std::uint32_t>(p), k);
  }

  RegexPool& pool_;
  const NumberBranch& branch_;
  RegexId digit_, zero_, nonzero_, point_;
  std::uint32_t integer_digits_ = 0, fraction_digits_ = 0;
};

}  // namespace

Result<RegexId> number_language(RegexPool& pool, const NumberBranch& branch, const SchemaOptions& options) {
  return NumberWriter(pool, branch, options).write();
}

}  // namespace deepinfer::schema
