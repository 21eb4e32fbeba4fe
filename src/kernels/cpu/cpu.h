// The fast CPU operators: descriptors and results of kernels/ops.h, bits of the reference. Entered in the registry by
// kernels/registry.cc. Linear operators read packed weights (pack.h) and leave weights that were not packed to the
// reference. Instruction sets are chosen at run time: AVX-512, AVX2 with FMA, or portable code (exact, but slow).
#pragma once

#include "kernels/ops.h"

namespace deepinfer::cpu {

void linear(const Exec&, const LinearOp&);
void grouped_linear(const Exec&, const GroupedLinearOp&);
void experts(const Exec&, const ExpertsOp&);
void index_select(const Exec&, const IndexSelectOp&);
void attention(const Exec&, const AttentionOp&);

}  // namespace deepinfer::cpu
