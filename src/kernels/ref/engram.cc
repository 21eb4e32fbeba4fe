// Engram: gather of table rows and the gated addition to the streams.
#include <algorithm>
#include <cmath>

#include "base/thread_pool.h"
#include "kernels/math.h"
#include "kernels/ref/reductions.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/round.h"

namespace deepinfer::ref {

void engram_gather(const Exec& exec, const EngramGatherOp& op) {
  exec.threads->parallel_for(op.rows, 4, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin * op.count; i < end * op.count; ++i) {
      const std::uint8_t* codes = op.table + op.row_ids[i] * op.width;
      const std::uint8_t* scales = op.scale + op.row_ids[i] * (op.width / 32);
      for (std::int64_t j = 0; j < op.width; ++j) {
        op.out[i * op.width + j] = e4m3_to_f32(codes[j]) * ue8m0_to_f32(scales[j / 32]);
      }
    }
  });
}

void engram_gate(const Exec& exec, const EngramGateOp& op) {
  constexpr std::int64_t kStreams = 4;
  const auto width = static_cast<float>(op.dim);
  exec.threads->parallel_for(op.rows, 4, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float* value = op.kv + t * (kStreams + 1) * op.dim + kStreams * op.dim;
      for (std::int64_t j = 0; j < kStreams; ++j) {
        float* x = op.x + (t * kStreams + j) * op.dim;
        const float* key = op.kv + t * (kStreams + 1) * op.dim + j * op.dim;
        std::array<float, kLanes> lanes{};
        for (std::int64_t i = 0; i < op.dim; ++i) {
          float& lane = lanes[static_cast<std::size_t>(i % kLanes)];
          lane = std::fma(x[i] * op.qk_weight[j * op.dim + i], key[i], lane);
        }
        const float rstd = 1.0f / std::sqrt(dot(x, x, op.dim) / width + op.eps) *
                           (1.0f / std::sqrt(dot(key, key, op.dim) / width + op.eps));
        const float d = sum_lanes(lanes) * rstd * (1.0f / std::sqrt(width));
        float gate = sigmoid_f32(std::copysign(std::sqrt(std::max(std::abs(d), 1e-6f)), d));
        if (op.image && op.image[t]) gate = 0.0f;
        for (std::int64_t i = 0; i < op.dim; ++i) x[i] = rounded(x[i] + gate * value[i], op.round);
      }
    }
  });
}

}  // namespace deepinfer::ref
