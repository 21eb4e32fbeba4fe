// Which roundings a forward pass applies. They are part of the model's definition, not an optimisation.
#pragma once

#include "kernels/ops.h"

namespace deepinfer {

struct Numerics {
  bool bf16_activations = true;      ///< operator outputs are rounded to bf16
  bool quantize_activations = true;  ///< inputs of FP8/FP4 linears go through FP8 per block
  bool cache_rounding = true;        ///< window, pool and index keys go through their FP8/FP4 formats

  /// What the checkpoints were trained for; the default.
  static Numerics official() { return {}; }
  /// fp32 activations without activation quantisation; the cache rounding can be left out too.
  static Numerics reference(bool with_cache_rounding) { return {false, false, with_cache_rounding}; }

  Round round() const { return bf16_activations ? Round::kBf16 : Round::kNone; }
};

}  // namespace deepinfer
