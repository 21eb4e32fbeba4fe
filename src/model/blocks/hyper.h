// The residual part shared by both families: four parallel streams that each sub-layer collapses to one input
// and expands its output into (manifold-constrained hyper-connections).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/blocks/step.h"
#include "model/weight_loader.h"

namespace deepinfer {

struct HyperWeights {
  std::span<const float> fn, scale, base;
  static HyperWeights load(WeightLoader& loader, const std::string& prefix) {
    return {loader.vector(prefix + "_fn"), loader.vector(prefix + "_scale"), loader.vector(prefix + "_base")};
  }
};

/// Mixing coefficients of one sub-layer for all rows of a step.
struct HyperMix {
  std::vector<float> pre, post, comb;
  explicit HyperMix(std::int64_t rows)
      : pre(static_cast<std::size_t>(rows * 4)),
        post(pre.size()),
        comb(static_cast<std::size_t>(rows * 16)) {}
};

/// mix = mixes(X).
void compute_mix(const BlockContext& c, const HyperWeights& w, const float* x, HyperMix& mix);
/// u = RMS(Σ pre_j X_j; norm).
void collapse_and_norm(const BlockContext& c, const float* x, const float* pre, std::span<const float> norm,
                       float* u);
/// X = expand(o, X; mix).
void expand(const BlockContext& c, const float* o, const HyperMix& mix, float* x);

}  // namespace deepinfer
