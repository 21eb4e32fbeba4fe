// Streams of random weights: raw bits named by (seed, tensor name), and tables that turn bits into numbers of
// a stored format. A tensor's values do not depend on any other tensor.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace deepinfer {

/// SplitMix64: a counter run through a mixer.
class RandomBits {
 public:
  RandomBits(std::uint64_t seed, std::string_view name);
  std::uint64_t next();
  /// What the (i+1)-th call of next() would give from here.
  std::uint64_t at(std::uint64_t i) const;
  /// Uniform in [0, bound), bound >= 1; the tiny bias of a product is accepted.
  std::uint64_t below(std::uint64_t bound);

 private:
  std::uint64_t state_;
};

/// Quantile of the standard normal distribution at p in (0, 1), to about 1e-9.
double normal_quantile(double p);

/// One draw of a normal distribution from 16 bits, one of 512 in the tail stretched eightfold.
float heavy_normal(std::uint64_t bits);

/// 256 equally likely codes whose values spread as a normal distribution of the given deviation, in code
/// units.
std::array<std::uint8_t, 256> e4m3_normal_codes(double deviation);
std::array<std::uint8_t, 256> e2m1_normal_codes(double deviation);

}  // namespace deepinfer
