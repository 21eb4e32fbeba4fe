// Router and experts.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"
#include "kernels/math.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/round.h"
#include "tensor/quantize.h"

namespace deepinfer::ref {
namespace {

// sqrt(softplus(x)), softplus in double so that its rounding never depends on the C library.
float router_score(float x) {
  const double softplus =
      std::max(static_cast<double>(x), 0.0) + std::log1p(std::exp(-std::abs(static_cast<double>(x))));
  return std::sqrt(static_cast<float>(softplus));
}

// g <- silu(min(g, limit)) * clamp(p, ±limit) * weight, then the quantisation of the down projection's input.
void gated_unit(float* g, const float* p, std::int64_t inner, float limit, float weight,
                std::int64_t quantize_block) {
  for (std::int64_t i = 0; i < inner; ++i) {
    const float gate = std::min(g[i], limit);
    const float up = std::clamp(p[i], -limit, limit);
    g[i] = silu_f32(gate) * up * weight;
  }
  if (quantize_block == 0) return;
  for (std::int64_t i = 0; i < inner; ++i) g[i] = round_to_bf16(g[i]);
  fp8_round_trip({g, static_cast<std::size_t>(inner)}, static_cast<std::size_t>(quantize_block));
}

// y [rows, dim] of one unit for gathered inputs x [rows, dim].
void run_expert(const Exec& exec, const ExpertsOp& op, const ExpertWeights& e, const float* x,
                const float* weight, std::int64_t rows, float* y) {
  const Round round = op.round;
  std::vector<float> g(static_cast<std::size_t>(rows * op.inner)), p(g.size());
  linear(exec, {x, op.dim, e.w1, g.data(), op.inner, rows, round});
  linear(exec, {x, op.dim, e.w3, p.data(), op.inner, rows, round});
  for (std::int64_t r = 0; r < rows; ++r) {
    gated_unit(g.data() + r * op.inner, p.data() + r * op.inner, op.inner, op.limit,
               weight ? weight[r] : 1.0f, op.quantize_block);
  }
  linear(exec, {g.data(), op.inner, e.w2, y, op.dim, rows, round});
}

}  // namespace

void route(const Exec&, const RouteOp& op) {
  std::vector<float> score(static_cast<std::size_t>(op.experts)), key(score.size());
  std::vector<std::int32_t> order(score.size());
  for (std::int64_t t = 0; t < op.rows; ++t) {
    for (std::size_t e = 0; e < score.size(); ++e) {
      score[e] = router_score(op.logits[t * op.experts + static_cast<std::int64_t>(e)] / op.temperature);
    }
    std::int32_t* chosen = op.chosen + t * op.top_k;
    if (op.fixed) {
      const std::int64_t* row = op.fixed + static_cast<std::int64_t>(op.ids[t]) * op.top_k;
      for (std::int64_t k = 0; k < op.top_k; ++k) chosen[k] = static_cast<std::int32_t>(row[k]);
    } else {
      const float* bias = op.image && op.image[t] ? op.bias_image : op.bias;
      for (std::size_t e = 0; e < score.size(); ++e) key[e] = score[e] + (bias ? bias[e] : 0.0f);
      std::iota(order.begin(), order.end(), 0);
      const auto better = [&](std::int32_t a, std::int32_t b) {
        const float ka = key[static_cast<std::size_t>(a)], kb = key[static_cast<std::size_t>(b)];
        return ka != kb ? ka > kb : a < b;
      };
      std::partial_sort(order.begin(), order.begin() + op.top_k, order.end(), better);
      std::copy_n(order.begin(), op.top_k, chosen);
    }
    std::sort(chosen, chosen + op.top_k);
    float sum = 0;
    for (std::int64_t k = 0; k < op.top_k; ++k) sum += score[static_cast<std::size_t>(chosen[k])];
    for (std::int64_t k = 0; k < op.top_k; ++k) {
      op.weight[t * op.top_k + k] =
          score[static_cast<std::size_t>(chosen[k])] / (sum + op.epsilon) * op.scale;
    }
  }
}

void experts(const Exec& exec, const ExpertsOp& op) {
  std::vector<float> routed(static_cast<std::size_t>(op.rows * op.top_k * op.dim));
  for (std::size_t e = 0; e < op.experts.size(); ++e) {
    std::vector<std::int64_t> slots;  // t * top_k + k of the rows that chose e
    for (std::int64_t s = 0; s < op.rows * op.top_k; ++s) {
      if (op.chosen[s] == static_cast<std::int32_t>(e)) slots.push_back(s);
    }
    if (slots.empty()) continue;
    const auto count = static_cast<std::int64_t>(slots.size());
    std::vector<float> x(static_cast<std::size_t>(count * op.dim)), y(x.size()), weight(slots.size());
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t slot = slots[static_cast<std::size_t>(i)];
      std::copy_n(op.x + slot / op.top_k * op.dim, op.dim, x.data() + i * op.dim);
      weight[static_cast<std::size_t>(i)] = op.weight[slot];
    }
    run_expert(exec, op, op.experts[e], x.data(), weight.data(), count, y.data());
    for (std::int64_t i = 0; i < count; ++i) {
      std::copy_n(y.data() + i * op.dim, op.dim, routed.data() + slots[static_cast<std::size_t>(i)] * op.dim);
    }
  }
  std::vector<float> shared(static_cast<std::size_t>(op.rows * op.dim), 0.0f);
  if (op.shared) run_expert(exec, op, *op.shared, op.x, nullptr, op.rows, shared.data());
  for (std::int64_t t = 0; t < op.rows; ++t) {
    for (std::int64_t i = 0; i < op.dim; ++i) {
      float sum = 0;
      for (std::int64_t k = 0; k < op.top_k; ++k)
        sum += routed[static_cast<std::size_t>((t * op.top_k + k) * op.dim + i)];
      op.out[t * op.dim + i] = rounded(sum + shared[static_cast<std::size_t>(t * op.dim + i)], op.round);
    }
  }
}

}  // namespace deepinfer::ref
