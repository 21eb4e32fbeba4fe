// Hyper-connections. The mixing products of several rows with the 24 rows of fn share the loads of both; the
// Sinkhorn iterations run on several rows at once, one row a lane.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/workspace.h"
#include "kernels/ref/ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/hyper.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/dots-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

// z[t][24] and, behind it, Σ x² of each row: fn_count products from fn row `first` on, for rows [begin, end).
void mix_products(const float* x, std::int64_t width, std::int64_t begin, std::int64_t end, const float* fn,
                  std::int64_t fn_count, float* z, std::int64_t stride) {
  dots(x + begin * width, end - begin, fn, fn_count, width, z + begin * stride, stride);
}

void square_sums(const float* x, std::int64_t width, std::int64_t begin, std::int64_t end, float* out) {
  for (std::int64_t t = begin; t < end; ++t) out[t] = dot16(x + t * width, x + t * width, width);
}

HWY_INLINE VF vec_sigmoid(VF x) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, vec_exp(hn::Neg(x))));
}

// Mixes of up to kVecLanes rows: z [rows][24] and r [rows], results in place of ops.h.
void finish_mix(const HyperMixOp& op, const float* z, const float* r, std::int64_t begin, std::int64_t end) {
  const DF d;
  const VF eps = hn::Set(d, op.eps);
  for (std::int64_t t0 = begin; t0 < end; t0 += kVecLanes) {
    const std::int64_t rows = std::min<std::int64_t>(kVecLanes, end - t0);
    HWY_ALIGN float lanes[24][kVecLanes] = {};
    for (std::int64_t t = 0; t < rows; ++t) {
      for (int i = 0; i < 24; ++i) lanes[i][t] = z[(t0 + t) * 24 + i] * r[t0 + t];
    }
    VF c[16];
    for (int i = 0; i < 24; ++i) {
      const VF v = hn::Add(hn::Mul(hn::Load(d, lanes[i]), hn::Set(d, op.scale[i < 4   ? 0
                                                                              : i < 8 ? 1
                                                                                      : 2])),
                           hn::Set(d, op.base[i]));
      if (i < 4) {
        hn::Store(hn::Add(vec_sigmoid(v), eps), d, lanes[i]);
      } else if (i < 8) {
        hn::Store(hn::Mul(hn::Set(d, 2.0f), vec_sigmoid(v)), d, lanes[i]);
      } else {
        c[i - 8] = v;
      }
    }
    for (int j = 0; j < 4; ++j) {
      VF* row = c + 4 * j;
      VF top = row[0];
      for (int k = 1; k < 4; ++k) top = hn::IfThenElse(hn::Lt(top, row[k]), row[k], top);
      VF sum = hn::Zero(d);
      for (int k = 0; k < 4; ++k) {
        row[k] = vec_exp(hn::Sub(row[k], top));
        sum = hn::Add(sum, row[k]);
      }
      for (int k = 0; k < 4; ++k) row[k] = hn::Add(hn::Div(row[k], sum), eps);
    }
    const auto columns = [&]() HWY_ATTR {
      for (int k = 0; k < 4; ++k) {
        VF sum = eps;
        for (int j = 0; j < 4; ++j) sum = hn::Add(sum, c[4 * j + k]);
        for (int j = 0; j < 4; ++j) c[4 * j + k] = hn::Div(c[4 * j + k], sum);
      }
    };
    columns();
    for (std::int32_t i = 1; i < op.iterations; ++i) {
      for (int j = 0; j < 4; ++j) {
        VF sum = eps;
        for (int k = 0; k < 4; ++k) sum = hn::Add(sum, c[4 * j + k]);
        for (int k = 0; k < 4; ++k) c[4 * j + k] = hn::Div(c[4 * j + k], sum);
      }
      columns();
    }
    for (int i = 0; i < 16; ++i) hn::Store(c[i], d, lanes[8 + i]);
    for (std::int64_t t = 0; t < rows; ++t) {
      for (int i = 0; i < 4; ++i) op.pre[(t0 + t) * 4 + i] = lanes[i][t];
      for (int i = 0; i < 4; ++i) op.post[(t0 + t) * 4 + i] = lanes[4 + i][t];
      for (int i = 0; i < 16; ++i) op.comb[(t0 + t) * 16 + i] = lanes[8 + i][t];
    }
  }
}

void collapse_rows(const HyperCollapseOp& op, std::int64_t begin, std::int64_t end) {
  const DF d;
  const bool bf16 = op.round == Round::kBf16;
  for (std::int64_t t = begin; t < end; ++t) {
    const float* x = op.x + t * 4 * op.dim;
    const float* p = op.pre + t * 4;
    float* u = op.u + t * op.dim;
    const VF p0 = hn::Set(d, p[0]), p1 = hn::Set(d, p[1]), p2 = hn::Set(d, p[2]), p3 = hn::Set(d, p[3]);
    std::int64_t i = 0;
    for (; i + kVecLanes <= op.dim; i += kVecLanes) {
      VF sum = hn::Add(hn::Mul(p0, hn::LoadU(d, x + i)), hn::Mul(p1, hn::LoadU(d, x + op.dim + i)));
      sum = hn::Add(sum, hn::Mul(p2, hn::LoadU(d, x + 2 * op.dim + i)));
      sum = hn::Add(sum, hn::Mul(p3, hn::LoadU(d, x + 3 * op.dim + i)));
      hn::StoreU(bf16 ? vec_bf16(sum) : sum, d, u + i);
    }
    for (; i < op.dim; ++i) {
      const float sum =
          ((p[0] * x[i] + p[1] * x[op.dim + i]) + p[2] * x[2 * op.dim + i]) + p[3] * x[3 * op.dim + i];
      u[i] = bf16 ? round_to_bf16(sum) : sum;
    }
  }
}

void expand_rows(const HyperExpandOp& op, std::int64_t begin, std::int64_t end) {
  const DF d;
  const bool bf16 = op.round == Round::kBf16;
  for (std::int64_t t = begin; t < end; ++t) {
    float* x = op.x + t * 4 * op.dim;
    const float* o = op.o + t * op.dim;
    const float* post = op.post + t * 4;
    const float* c = op.comb + t * 16;
    std::int64_t i = 0;
    for (; i + kVecLanes <= op.dim; i += kVecLanes) {
      const VF ov = hn::LoadU(d, o + i);
      VF in[4];
      for (int j = 0; j < 4; ++j) in[j] = hn::LoadU(d, x + j * op.dim + i);
      for (int k = 0; k < 4; ++k) {
        VF sum = hn::Mul(hn::Set(d, post[k]), ov);
        for (int j = 0; j < 4; ++j) sum = hn::Add(sum, hn::Mul(hn::Set(d, c[4 * j + k]), in[j]));
        hn::StoreU(bf16 ? vec_bf16(sum) : sum, d, x + k * op.dim + i);
      }
    }
    for (; i < op.dim; ++i) {
      const float in[4] = {x[i], x[op.dim + i], x[2 * op.dim + i], x[3 * op.dim + i]};
      for (int k = 0; k < 4; ++k) {
        float sum = post[k] * o[i];
        for (int j = 0; j < 4; ++j) sum += c[4 * j + k] * in[j];
        x[k * op.dim + i] = bf16 ? round_to_bf16(sum) : sum;
      }
    }
  }
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {

HWY_EXPORT(mix_products);
HWY_EXPORT(square_sums);
HWY_EXPORT(finish_mix);
HWY_EXPORT(collapse_rows);
HWY_EXPORT(expand_rows);

namespace {

// z[t][i] = fn_i · x_t for fn_count rows of fn, r[t] = 1 / sqrt(mean(x_t²) + eps). Few rows: the rows of fn
// are shared out.
void products(const Exec& exec, const float* x, std::int64_t rows, std::int64_t width, const float* fn,
              std::int64_t fn_count, float eps, float* z, float* r) {
  constexpr std::int64_t kRows = 8, kFn = 4;
  const std::int64_t parts = fn_count / kFn;
  const std::int64_t blocks = (rows + kRows - 1) / kRows;
  for_rows(exec, blocks * parts, std::min(rows, kRows) * kFn * width / 8,
           [&](std::int64_t begin, std::int64_t end) {
             for (std::int64_t i = begin; i < end; ++i) {
               const std::int64_t t = i / parts * kRows, part = i % parts, t_end = std::min(t + kRows, rows);
               HWY_DYNAMIC_DISPATCH(mix_products)
               (x, width, t, t_end, fn + part * kFn * width, kFn, z + part * kFn, fn_count);
               if (part != 0) continue;
               HWY_DYNAMIC_DISPATCH(square_sums)(x, width, t, t_end, r);
               for (std::int64_t j = t; j < t_end; ++j)
                 r[j] = 1.0f / std::sqrt(r[j] / static_cast<float>(width) + eps);
             }
           });
}

}  // namespace

void hyper_mix(const Exec& exec, const HyperMixOp& op) {
  if (op.dim % 4 != 0) return ref::hyper_mix(exec, op);
  auto* z = scratch<float>(Scratch::kGather, op.rows * 25);
  float* r = z + op.rows * 24;
  products(exec, op.x, op.rows, 4 * op.dim, op.fn, 24, op.norm_eps, z, r);
  for_rows(exec, op.rows, 200, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(finish_mix)(op, z, r, begin, end);
  });
}

void hyper_head(const Exec& exec, const HyperHeadOp& op) {
  if (op.dim % 4 != 0) return ref::hyper_head(exec, op);
  auto* z = scratch<float>(Scratch::kGather, op.rows * 5);
  float* r = z + op.rows * 4;
  products(exec, op.x, op.rows, 4 * op.dim, op.fn, 4, op.norm_eps, z, r);
  for (std::int64_t t = 0; t < op.rows; ++t) {
    for (std::int64_t j = 0; j < 4; ++j) {
      op.pre[t * 4 + j] = sigmoid_f32(z[t * 4 + j] * r[t] * op.scale[0] + op.base[j]) + op.eps;
    }
  }
}

void hyper_collapse(const Exec& exec, const HyperCollapseOp& op) {
  for_rows(exec, op.rows, op.dim, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(collapse_rows)(op, begin, end);
  });
}

void hyper_expand(const Exec& exec, const HyperExpandOp& op) {
  for_rows(exec, op.rows, 2 * op.dim, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(expand_rows)(op, begin, end);
  });
}

}  // namespace deepinfer::cpu
#endif  // HWY_ONCE
