// What an operator moves and computes at least: bytes of weights and cache read or written once, and
// floating-point operations (a multiply-add is two). Benchmarks set times against these, the planner adds
// them up. Activations count only for the operators that do little else than move them.
#pragma once

#include "kernels/ops.h"

namespace deepinfer {

struct OpCost {
  double bytes = 0;
  double flops = 0;
};

/// Bytes of a weight with its scales as stored.
double weight_bytes(const Weight& w);

OpCost cost(const LinearOp& op);
OpCost cost(const GroupedLinearOp& op);
/// Every expert that some row chose counts once.
OpCost cost(const ExpertsOp& op);
/// Keys of neighbouring rows count once a row: they are decoded for each (window keys perhaps less often).
OpCost cost(const AttentionOp& op);
OpCost cost(const IndexSelectOp& op);
OpCost cost(const HyperMixOp& op);
OpCost cost(const HyperCollapseOp& op);
OpCost cost(const HyperExpandOp& op);
OpCost cost(const RmsNormOp& op);
OpCost cost(const RopeOp& op);
OpCost cost(const QuantizeOp& op);
OpCost cost(const CacheRoundOp& op);
OpCost cost(const EngramGatherOp& op);
OpCost cost(const EngramGateOp& op);

}  // namespace deepinfer
