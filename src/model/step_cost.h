// What one step has to move and multiply, from the configuration alone: the yardstick for measured speeds.
#pragma once

#include <cstdint>

#include "model/config.h"
#include "model/numerics.h"

namespace deepinfer {

struct StepCost {
  double weight_bytes =
      0;  ///< stored weights read at least once; experts: the expected number of different ones
  double cache_bytes = 0;  ///< window records, selected history and index keys read
  double flops = 0;        ///< two per multiply-add, attention and index scores included
  double bytes() const { return weight_bytes + cache_bytes; }
};

/// A step of `rows` rows, each with `context` positions behind it, of which `logits_rows` need logits.
/// Experts are taken to be chosen uniformly: of E experts, rows * k choices meet E * (1 - (1 - k/E)^rows)
/// different ones.
StepCost step_cost(const ModelConfig& config, const Numerics& numerics, std::int64_t rows,
                   std::int64_t logits_rows, std::int64_t context);

}  // namespace deepinfer
