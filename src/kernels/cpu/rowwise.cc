// Embedding, norm, rotation, activation quantisation, Hadamard transform.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rowwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/quantize-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

void embed_rows(const EmbedOp& op, std::int64_t begin, std::int64_t end) {
  for (std::int64_t t = begin; t < end; ++t) {
    const std::uint16_t* row = op.weight + static_cast<std::int64_t>(op.ids[t]) * op.dim;
    float* x = op.x + t * op.streams * op.dim;
    std::int64_t i = 0;
    for (; i + 16 <= op.dim; i += 16) {
      const V16 v = load_bf16_16(row + i);
      for (std::int64_t m = 0; m < op.streams; ++m) store16(v, x + m * op.dim + i);
    }
    for (; i < op.dim; ++i) {
      for (std::int64_t m = 0; m < op.streams; ++m) x[m * op.dim + i] = bf16_to_f32(row[i]);
    }
  }
}

void norm_rows(const RmsNormOp& op, std::int64_t begin, std::int64_t end) {
  const DF d;
  const bool bf16 = op.round == Round::kBf16;
  for (std::int64_t v = begin * op.groups; v < end * op.groups; ++v) {
    const std::int64_t at = v / op.groups * op.stride + v % op.groups * op.width;
    const float* x = op.x + at;
    float* y = op.y + at;
    const float mean = dot16(x, x, op.width) / static_cast<float>(op.width);
    const float r = 1.0f / std::sqrt(mean + op.eps);
    const VF rv = hn::Set(d, r), one = hn::Set(d, 1.0f);
    std::int64_t i = 0;
    for (; i + kVecLanes <= op.width; i += kVecLanes) {
      const VF w = op.weight ? hn::LoadU(d, op.weight + i) : one;
      const VF z = hn::Mul(hn::Mul(hn::LoadU(d, x + i), rv), w);
      hn::StoreU(bf16 ? vec_bf16(z) : z, d, y + i);
    }
    for (; i < op.width; ++i) {
      const float z = x[i] * r * (op.weight ? op.weight[i] : 1.0f);
      y[i] = bf16 ? round_to_bf16(z) : z;
    }
  }
}

#if HWY_TARGET == HWY_SCALAR
void rope_vector(float* x, const float* rotation, std::int64_t count, bool inverse, bool bf16) {
  for (std::int64_t i = 0; i < count; i += 2) {
    const float c = rotation[i], s = inverse ? -rotation[i + 1] : rotation[i + 1];
    const float y0 = x[i] * c - x[i + 1] * s, y1 = x[i] * s + x[i + 1] * c;
    x[i] = bf16 ? round_to_bf16(y0) : y0;
    x[i + 1] = bf16 ? round_to_bf16(y1) : y1;
  }
}
#else
// Pairs stay side by side: (a, b) * (c, c) + (-b*s, a*s).
HWY_INLINE VF rotated(VF v, VF cs, VF s_sign, VF even, bool bf16) {
  const VF c = hn::DupEven(cs), s = hn::Xor(hn::DupOdd(cs), s_sign);
  const VF y = hn::Add(hn::Mul(v, c), hn::Xor(hn::Mul(hn::Shuffle2301(v), s), even));
  return bf16 ? vec_bf16(y) : y;
}

// A short rest goes through a buffer: GCC 12 makes vfmaddsub of the scalar form, against -ffp-contract=off.
void rope_vector(float* x, const float* rotation, std::int64_t count, bool inverse, bool bf16) {
  const DF d;
  const DU du;
  const VF s_sign = hn::BitCast(d, hn::Set(du, inverse ? 0x80000000u : 0u));
  const VU odd = hn::And(hn::Iota(du, 0), hn::Set(du, 1u));
  const VF even = hn::BitCast(d, hn::And(hn::Sub(odd, hn::Set(du, 1u)), hn::Set(du, 0x80000000u)));
  std::int64_t i = 0;
  for (; i + kVecLanes <= count; i += kVecLanes) {
    hn::StoreU(rotated(hn::LoadU(d, x + i), hn::LoadU(d, rotation + i), s_sign, even, bf16), d, x + i);
  }
  if (i == count) return;
  HWY_ALIGN float v[kVecLanes] = {}, cs[kVecLanes] = {};
  std::copy(x + i, x + count, v);
  std::copy(rotation + i, rotation + count, cs);
  hn::Store(rotated(hn::Load(d, v), hn::Load(d, cs), s_sign, even, bf16), d, v);
  std::copy(v, v + count - i, x + i);
}
#endif

void rope_rows(const RopeOp& op, std::int64_t begin, std::int64_t end) {
  const std::int64_t count = 2 * op.half_dim;
  for (std::int64_t t = begin; t < end; ++t) {
    for (std::int64_t h = 0; h < op.heads; ++h) {
      rope_vector(op.x + (t * op.heads + h + 1) * op.dim - count, op.rotation + t * count, count, op.inverse,
                  op.round == Round::kBf16);
    }
  }
}

void quantize_rows(const QuantizeOp& op, std::int64_t begin, std::int64_t end) {
  for (std::int64_t t = begin; t < end; ++t) {
    float* y = op.y + t * op.width;
    if (op.y != op.x) std::copy(op.x + t * op.width, op.x + (t + 1) * op.width, y);
    fp8_row_round_trip(y, op.width, op.block);
  }
}

void hadamard_rows(const HadamardOp& op, std::int64_t begin, std::int64_t end) {
  const DF d;
  const float norm = 1.0f / std::sqrt(static_cast<float>(op.dim));
  const bool bf16 = op.round == Round::kBf16;
  for (std::int64_t v = begin * op.heads; v < end * op.heads; ++v) {
    float* x = op.x + v * op.dim;
    for (std::int64_t half = 1; half < op.dim; half *= 2) {
      for (std::int64_t i = 0; i < op.dim; i += 2 * half) {
        std::int64_t j = i;
        for (; j + kVecLanes <= i + half; j += kVecLanes) {
          const VF a = hn::LoadU(d, x + j), b = hn::LoadU(d, x + j + half);
          hn::StoreU(hn::Add(a, b), d, x + j);
          hn::StoreU(hn::Sub(a, b), d, x + j + half);
        }
        for (; j < i + half; ++j) {
          const float a = x[j], b = x[j + half];
          x[j] = a + b;
          x[j + half] = a - b;
        }
      }
    }
    for (std::int64_t i = 0; i < op.dim; ++i) x[i] = bf16 ? round_to_bf16(x[i] * norm) : x[i] * norm;
  }
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {

HWY_EXPORT(embed_rows);
HWY_EXPORT(norm_rows);
HWY_EXPORT(rope_rows);
HWY_EXPORT(quantize_rows);
HWY_EXPORT(hadamard_rows);

void embed(const Exec& exec, const EmbedOp& op) {
  for_rows(exec, op.rows, op.streams * op.dim / 4, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(embed_rows)(op, begin, end);
  });
}

void rms_norm(const Exec& exec, const RmsNormOp& op) {
  for_rows(exec, op.rows, op.groups * op.width / 2, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(norm_rows)(op, begin, end);
  });
}

void rope(const Exec& exec, const RopeOp& op) {
  for_rows(exec, op.rows, op.heads * op.half_dim, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(rope_rows)(op, begin, end);
  });
}

void quantize(const Exec& exec, const QuantizeOp& op) {
  for_rows(exec, op.rows, op.width, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(quantize_rows)(op, begin, end);
  });
}

void hadamard(const Exec& exec, const HadamardOp& op) {
  DI_CHECK(op.dim > 0 && (op.dim & (op.dim - 1)) == 0, "Hadamard of width ", op.dim);
  for_rows(exec, op.rows, op.heads * op.dim * 4, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(hadamard_rows)(op, begin, end);
  });
}

}  // namespace deepinfer::cpu
#endif  // HWY_ONCE
