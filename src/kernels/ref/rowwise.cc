// Operators that treat each row on its own: embedding, norm, rotation, quantisation, Hadamard.
#include <cmath>
#include <span>

#include "base/check.h"
#include "base/thread_pool.h"
#include "kernels/ref/reductions.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/round.h"
#include "tensor/quantize.h"

namespace deepinfer::ref {

void embed(const Exec& exec, const EmbedOp& op) {
  exec.threads->parallel_for(op.rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::uint16_t* row = op.weight + static_cast<std::int64_t>(op.ids[t]) * op.dim;
      for (std::int64_t m = 0; m < op.streams; ++m) {
        float* out = op.x + (t * op.streams + m) * op.dim;
        for (std::int64_t i = 0; i < op.dim; ++i) out[i] = bf16_to_f32(row[i]);
      }
    }
  });
}

void rms_norm(const Exec& exec, const RmsNormOp& op) {
  exec.threads->parallel_for(op.rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t g = 0; g < op.groups; ++g) {
        const float* x = op.x + t * op.stride + g * op.width;
        float* y = op.y + t * op.stride + g * op.width;
        const float mean = dot(x, x, op.width) / static_cast<float>(op.width);
        const float r = 1.0f / std::sqrt(mean + op.eps);
        for (std::int64_t i = 0; i < op.width; ++i) {
          const float normed = x[i] * r;
          y[i] = rounded(op.weight ? normed * op.weight[i] : normed, op.round);
        }
      }
    }
  });
}

void rope(const Exec& exec, const RopeOp& op) {
  exec.threads->parallel_for(op.rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float* rotation = op.rotation + t * op.half_dim * 2;
      for (std::int64_t h = 0; h < op.heads; ++h) {
        float* x = op.x + (t * op.heads + h + 1) * op.dim - 2 * op.half_dim;
        for (std::int64_t i = 0; i < op.half_dim; ++i) {
          const float c = rotation[2 * i];
          const float s = op.inverse ? -rotation[2 * i + 1] : rotation[2 * i + 1];
          const float a = x[2 * i], b = x[2 * i + 1];
          x[2 * i] = rounded(a * c - b * s, op.round);
          x[2 * i + 1] = rounded(a * s + b * c, op.round);
        }
      }
    }
  });
}

void quantize(const Exec& exec, const QuantizeOp& op) {
  exec.threads->parallel_for(op.rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      float* y = op.y + t * op.width;
      if (op.y != op.x) std::copy(op.x + t * op.width, op.x + (t + 1) * op.width, y);
      fp8_round_trip({y, static_cast<std::size_t>(op.width)}, static_cast<std::size_t>(op.block));
    }
  });
}

void hadamard(const Exec& exec, const HadamardOp& op) {
  DI_CHECK(op.dim > 0 && (op.dim & (op.dim - 1)) == 0, "Hadamard of width ", op.dim);
  const float norm = 1.0f / std::sqrt(static_cast<float>(op.dim));
  exec.threads->parallel_for(op.rows * op.heads, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t v = begin; v < end; ++v) {
      float* x = op.x + v * op.dim;
      for (std::int64_t half = 1; half < op.dim; half *= 2) {
        for (std::int64_t i = 0; i < op.dim; i += 2 * half) {
          for (std::int64_t j = i; j < i + half; ++j) {
            const float a = x[j], b = x[j + half];
            x[j] = a + b;
            x[j + half] = a - b;
          }
        }
      }
      for (std::int64_t i = 0; i < op.dim; ++i) x[i] = rounded(x[i] * norm, op.round);
    }
  });
}

}  // namespace deepinfer::ref
