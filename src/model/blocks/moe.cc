#include "model/blocks/moe.h"

#include <algorithm>

namespace deepinfer {

MoeWeights MoeWeights::load(WeightLoader& loader, const std::string& prefix, std::int64_t experts,
                            std::int64_t top_k) {
  MoeWeights w;
  w.gate = loader.matrix(prefix + ".gate");
  if (loader.has(prefix + ".gate.bias")) w.bias = loader.vector(prefix + ".gate.bias");
  if (loader.has(prefix + ".gate.bias_vl")) w.bias_image = loader.vector(prefix + ".gate.bias_vl");
  if (loader.has(prefix + ".gate.tid2eid")) w.fixed = loader.i64(prefix + ".gate.tid2eid");
  for (std::int64_t e = 0; e < experts; ++e) {
    w.experts.push_back(loader.expert(prefix + ".experts." + std::to_string(e)));
  }
  w.shared = loader.expert(prefix + ".shared_experts");
  w.top_k = top_k;
  return w;
}

MoeScratch::MoeScratch(const ModelConfig& config, std::int64_t rows)
    : logits(static_cast<std::size_t>(rows * std::max(config.experts, config.draft.experts))),
      weight(static_cast<std::size_t>(rows *
                                      std::max(config.experts_per_token, config.draft.experts_per_token))),
      quantized(static_cast<std::size_t>(rows * config.hidden)),
      chosen(weight.size()) {}

void run_moe(const BlockContext& c, std::int64_t layer, const MoeWeights& w, const float* u,
             const std::uint8_t* image, MoeScratch& s, float* out) {
  const std::int64_t experts = w.gate.n;
  const std::int64_t hidden = c.config.hidden;
  c.ops.linear(c.exec, {u, hidden, w.gate, s.logits.data(), experts, c.rows(), Round::kNone});
  c.ops.route(c.exec, {.logits = s.logits.data(),
                       .bias = w.bias.empty() ? nullptr : w.bias.data(),
                       .bias_image = w.bias_image.empty() ? nullptr : w.bias_image.data(),
                       .image = w.bias_image.empty() ? nullptr : image,
                       .fixed = w.fixed.empty() ? nullptr : w.fixed.data(),
                       .ids = c.ids.data(),
                       .rows = c.rows(),
                       .experts = experts,
                       .top_k = w.top_k,
                       .temperature = static_cast<float>(c.config.gate_temperature),
                       .scale = static_cast<float>(c.config.routed_scale),
                       .epsilon = w.epsilon,
                       .chosen = s.chosen.data(),
                       .weight = s.weight.data()});
  if (c.observer) {
    c.observer->ids("router_ids", layer, s.chosen.data(), c.rows(), w.top_k);
    c.observe("router_w", layer, s.weight.data(), w.top_k);
  }
  const bool quantize = c.numerics.quantize_activations && c.config.quantization.block != 0;
  const float* x = quantized_input(c, u, hidden, s.quantized.data());
  c.ops.experts(c.exec, {.x = x,
                         .experts = w.experts,
                         .shared = &w.shared,
                         .chosen = s.chosen.data(),
                         .weight = s.weight.data(),
                         .rows = c.rows(),
                         .top_k = w.top_k,
                         .dim = hidden,
                         .inner = w.shared.w1.n,
                         .limit = static_cast<float>(c.config.swiglu_limit),
                         .quantize_block = quantize ? c.config.quantization.block : 0,
                         .out = out,
                         .round = c.round()});
}

}  // namespace deepinfer
