// Output rounding shared by the reference operators.
#pragma once

#include "kernels/ops.h"
#include "tensor/float_formats.h"

namespace deepinfer::ref {

inline float rounded(float x, Round round) {
  return round == Round::kBf16 ? round_to_bf16(x) : x;
}

}  // namespace deepinfer::ref
