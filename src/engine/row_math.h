// Passes over one row of logits [vocab] fp32. Every sum has one fixed order that depends on the row length
// alone, and the exponential is our own polynomial, so results do not change with the compiler's library.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "deepinfer/types.h"

namespace deepinfer {

/// e^x in fp32: relative error below 2e-7 for x in [-87, 88]; 0 below -87.
float exp_fp32(float x);

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
