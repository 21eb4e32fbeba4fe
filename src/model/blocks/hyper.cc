#include "model/blocks/hyper.h"

namespace deepinfer {

void compute_mix(const BlockContext& c, const HyperWeights& w, const float* x, HyperMix& mix) {
  c.ops.hyper_mix(c.exec, {.x = x,
                           .fn = w.fn.data(),
                           .scale = w.scale.data(),
                           .base = w.base.data(),
                           .pre = mix.pre.data(),
                           .post = mix.post.data(),
                           .comb = mix.comb.data(),
                           .rows = c.rows(),
                           .dim = c.config.hidden,
                           .norm_eps = static_cast<float>(c.config.norm_eps),
                           .eps = static_cast<float>(c.config.hyper_eps),
                           .iterations = static_cast<std::int32_t>(c.config.sinkhorn_iterations)});
}

void collapse_and_norm(const BlockContext& c, const float* x, const float* pre, std::span<const float> norm,
                       float* u) {
  c.ops.hyper_collapse(c.exec, {x, pre, u, c.rows(), c.config.hidden, c.round()});
  c.ops.rms_norm(c.exec, {u, u, c.config.hidden, c.rows(), 1, c.config.hidden, norm.data(),
                          static_cast<float>(c.config.norm_eps), c.round()});
}

void expand(const BlockContext& c, const float* o, const HyperMix& mix, float* x) {
  c.ops.hyper_expand(c.exec, {o, mix.post.data(), mix.comb.data(), x, c.rows(), c.config.hidden, c.round()});
}

}  // namespace deepinfer
