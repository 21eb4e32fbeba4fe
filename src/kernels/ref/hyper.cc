// Hyper-connections: mixing coefficients, collapse of the four streams, expansion of a sub-layer's output.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/thread_pool.h"
#include "kernels/math.h"
#include "kernels/ref/reductions.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/round.h"

namespace deepinfer::ref {
namespace {

constexpr std::int64_t kStreams = 4;

// Softmax over k with eps, then alternating normalisation of columns and rows; c is [j][k].
void sinkhorn(float* c, float eps, std::int32_t iterations) {
  for (std::int64_t j = 0; j < kStreams; ++j) {
    float* row = c + j * kStreams;
    const float top = *std::max_element(row, row + kStreams);
    float sum = 0;
    for (std::int64_t k = 0; k < kStreams; ++k) sum += row[k] = exp_f32(row[k] - top);
    for (std::int64_t k = 0; k < kStreams; ++k) row[k] = row[k] / sum + eps;
  }
  const auto columns = [&] {
    for (std::int64_t k = 0; k < kStreams; ++k) {
      float sum = eps;
      for (std::int64_t j = 0; j < kStreams; ++j) sum += c[j * kStreams + k];
      for (std::int64_t j = 0; j < kStreams; ++j) c[j * kStreams + k] /= sum;
    }
  };
  columns();
  for (std::int32_t i = 1; i < iterations; ++i) {
    for (std::int64_t j = 0; j < kStreams; ++j) {
      float sum = eps;
      for (std::int64_t k = 0; k < kStreams; ++k) sum += c[j * kStreams + k];
      for (std::int64_t k = 0; k < kStreams; ++k) c[j * kStreams + k] /= sum;
    }
    columns();
  }
}

}  // namespace

void hyper_mix(const Exec& exec, const HyperMixOp& op) {
  const std::int64_t width = kStreams * op.dim;
  exec.threads->parallel_for(op.rows, 4, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float* x = op.x + t * width;
      const float r = 1.0f / std::sqrt(dot(x, x, width) / static_cast<float>(width) + op.norm_eps);
      std::array<float, 24> z;
      for (std::int64_t i = 0; i < 24; ++i)
        z[static_cast<std::size_t>(i)] = dot(op.fn + i * width, x, width) * r;
      const float* zp = z.data();
      for (std::int64_t j = 0; j < kStreams; ++j) {
        op.pre[t * 4 + j] = sigmoid_f32(zp[j] * op.scale[0] + op.base[j]) + op.eps;
        op.post[t * 4 + j] = 2.0f * sigmoid_f32(zp[4 + j] * op.scale[1] + op.base[4 + j]);
      }
      float* comb = op.comb + t * 16;
      for (std::int64_t i = 0; i < 16; ++i) comb[i] = zp[8 + i] * op.scale[2] + op.base[8 + i];
      sinkhorn(comb, op.eps, op.iterations);
    }
  });
}

void hyper_head(const Exec& exec, const HyperHeadOp& op) {
  const std::int64_t width = kStreams * op.dim;
  exec.threads->parallel_for(op.rows, 4, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float* x = op.x + t * width;
      const float r = 1.0f / std::sqrt(dot(x, x, width) / static_cast<float>(width) + op.norm_eps);
      for (std::int64_t j = 0; j < kStreams; ++j) {
        const float z = dot(op.fn + j * width, x, width) * r;
        op.pre[t * 4 + j] = sigmoid_f32(z * op.scale[0] + op.base[j]) + op.eps;
      }
    }
  });
}

void hyper_collapse(const Exec& exec, const HyperCollapseOp& op) {
  exec.threads->parallel_for(op.rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float* x = op.x + t * kStreams * op.dim;
      const float* p = op.pre + t * kStreams;
      for (std::int64_t i = 0; i < op.dim; ++i) {
        const float sum =
            ((p[0] * x[i] + p[1] * x[op.dim + i]) + p[2] * x[2 * op.dim + i]) + p[3] * x[3 * op.dim + i];
        op.u[t * op.dim + i] = rounded(sum, op.round);
      }
    }
  });
}

void hyper_expand(const Exec& exec, const HyperExpandOp& op) {
  exec.threads->parallel_for(op.rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      float* x = op.x + t * kStreams * op.dim;
      const float* o = op.o + t * op.dim;
      const float* post = op.post + t * kStreams;
      const float* c = op.comb + t * 16;
      for (std::int64_t i = 0; i < op.dim; ++i) {
        const std::array<float, 4> in = {x[i], x[op.dim + i], x[2 * op.dim + i], x[3 * op.dim + i]};
        for (std::int64_t k = 0; k < kStreams; ++k) {
          float sum = post[k] * o[i];
          for (std::int64_t j = 0; j < kStreams; ++j) sum += c[j * 4 + k] * in[static_cast<std::size_t>(j)];
          x[k * op.dim + i] = rounded(sum, op.round);
        }
      }
    }
  });
}

}  // namespace deepinfer::ref
