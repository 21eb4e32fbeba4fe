// The fast CPU operators: descriptors and results of kernels/ops.h, bits of the reference. Entered in the
// registry by kernels/registry.cc. Linear operators read packed weights (pack.h) and leave weights that were
// not packed to the reference. Instruction sets are chosen at run time: AVX-512, AVX2 with FMA, or portable
// code (exact, but slow).
#pragma once

#include "kernels/ops.h"

namespace deepinfer::cpu {

void linear(const Exec&, const LinearOp&);
void grouped_linear(const Exec&, const GroupedLinearOp&);
void rms_norm(const Exec&, const RmsNormOp&);
void rope(const Exec&, const RopeOp&);
void quantize(const Exec&, const QuantizeOp&);
void embed(const Exec&, const EmbedOp&);
void hyper_mix(const Exec&, const HyperMixOp&);
void hyper_head(const Exec&, const HyperHeadOp&);
void hyper_collapse(const Exec&, const HyperCollapseOp&);
void hyper_expand(const Exec&, const HyperExpandOp&);
void cache_round(const Exec&, const CacheRoundOp&);
void window_write(const Exec&, const WindowWriteOp&);
void compress(const Exec&, const CompressOp&);
void pool_write(const Exec&, const PoolWriteOp&);
void hadamard(const Exec&, const HadamardOp&);
void index_select(const Exec&, const IndexSelectOp&);
void attention(const Exec&, const AttentionOp&);
void route(const Exec&, const RouteOp&);
void experts(const Exec&, const ExpertsOp&);
void engram_gather(const Exec&, const EngramGatherOp&);
void engram_gate(const Exec&, const EngramGateOp&);

}  // namespace deepinfer::cpu
