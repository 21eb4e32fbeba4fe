// Passes over one row of logits [vocab] fp32. Every sum has one fixed order that depends on the row length
// alone, and the exponential is our own polynomial, so results do not change with the compiler's library.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "deepinfer/types.h"

namespace deepinfer {

/// e^x in fp32: relative error below 2e-7 for x in [-87, 88], held at both ends, 0 below -87. Written so that
/// loops over it vectorise: e^x = 2^n e^r with |r| <= ln(2)/2, ln(2) in two parts, Taylor coefficients up to
/// r^7.
inline float exp_fp32(float x) {
  const float low = x > -87.0f ? x : -87.0f;
  const float held = low < 88.0f ? low : 88.0f;
  const float shifted = held * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: rounds to an integer in the low bits
  const float n = shifted - 12582912.0f;
  const float r = (held - n * 0.693145752f) - n * 1.42860677e-6f;
  float p = 1.98412698e-4f;
  p = p * r + 1.38888889e-3f;
  p = p * r + 8.33333333e-3f;
  p = p * r + 4.16666667e-2f;
  p = p * r + 1.66666667e-1f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const std::int32_t power = (std::bit_cast<std::int32_t>(shifted) - 0x4B400000 + 127) << 23;
  const float value = p * std::bit_cast<float>(power);
  return x < -87.0f ? 0.0f : value;
}

struct RowScan {
  TokenId best = 0;  ///< the largest logit, ties to the lower id
  float max = 0;
  bool finite = true;  ///< no NaN and no infinity anywhere
  bool flat = false;   ///< all values equal, in a row of more than one
};
RowScan scan_row(std::span<const float> row);

/// The largest entry (ties to the lower id) of a row that may hold -inf but no NaN; -1 if all are -inf.
TokenId argmax_row(std::span<const float> row);

/// sum exp(scale * (row[i] - max)) over all entries; -inf entries count nothing. `max` is the largest entry.
double exp_sum(std::span<const float> row, float max, float scale);

/// The `count` largest entries, (value descending, id ascending).
std::vector<std::pair<float, TokenId>> top_entries(std::span<const float> row, std::int64_t count);

/// Log-probabilities of the plain distribution of a row (before any sampling parameter): of `chosen`, and of
/// the `top_count` most probable tokens.
TokenLogprob row_logprobs(std::span<const float> row, float max, TokenId chosen, std::int64_t top_count);

}  // namespace deepinfer
