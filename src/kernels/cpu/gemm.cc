#include "kernels/cpu/gemm.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <utility>

#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {
namespace {

constexpr int kBlock = static_cast<int>(kAccumulateBlock);
constexpr bool kWide = kVecs == 1;          // 32 registers of 16 lanes
constexpr int kPanelTiles = kWide ? 2 : 1;  // outputs of a register block: 32 or 16
constexpr int kBlockRows = kWide ? 12 : 6;  // rows of a register block: 24 or 12 accumulators
constexpr int kRowStep = kWide ? 4 : 2;     // smaller blocks are multiples of this
constexpr int kDirectRows = kWide ? 8 : 4;
constexpr int kChunk = 256;  // k's of a panel

// ---- formats: kGroup k's of 16 rows lie in one run of 64 bytes; value<j> is the j-th of them ----

// A format's Run is what one register's share of the 64 bytes is kept as.
HWY_INLINE VU load_run(const std::uint8_t* p) {
  return hn::LoadU(DU(), reinterpret_cast<const std::uint32_t*>(p));
}

struct F32 {
  static constexpr int kGroup = 1, kScaleBytes = 0;
  using Run = VU;
  static HWY_INLINE Run load(const std::uint8_t* p) { return load_run(p); }
  template <int kIndex>
  static HWY_INLINE VF value(const Run& u) {
    return hn::BitCast(DF(), u);
  }
  static HWY_INLINE V16 scale(const std::uint8_t*) { return set16(1.0f); }
};

struct Bf16 {
  static constexpr int kGroup = 2, kScaleBytes = 0;
  using Run = VU;
  static HWY_INLINE Run load(const std::uint8_t* p) { return load_run(p); }
  template <int kIndex>
  static HWY_INLINE VF value(const Run& u) {
    if constexpr (kIndex == 0) return hn::BitCast(DF(), hn::ShiftLeft<16>(u));
    return hn::BitCast(DF(), hn::And(u, hn::Set(DU(), 0xffff0000u)));
  }
  static HWY_INLINE V16 scale(const std::uint8_t*) { return set16(1.0f); }
};

// A code moved so that its sign is the float's sign and its exponent ends where the float's exponent ends is
// the value times a power of two, subnormal codes included; one exact multiplication puts the exponent right.
// The code stands at the top of the word when `kRight` shifts it.
template <int kRight>
HWY_INLINE VF from_top(VU u, std::uint32_t mask, float rebias) {
  const DI d;
  const auto s = hn::ShiftRight<kRight>(hn::BitCast(d, u));
  return hn::Mul(hn::BitCast(DF(), hn::And(hn::BitCast(DU(), s), hn::Set(DU(), mask))),
                 hn::Set(DF(), rebias));
}

struct Fp8 {
  static constexpr int kGroup = 4, kScaleBytes = 1;
  // Four loads, each with another code at the top of the words: unaligned loads are cheaper than shifts here.
  struct Run {
    VU u[4];
  };
  static HWY_INLINE Run load(const std::uint8_t* p) {
    return {load_run(p - 3), load_run(p - 2), load_run(p - 1), load_run(p)};
  }
  template <int kIndex>
  static HWY_INLINE VF value(const Run& r) {
    return from_top<4>(r.u[kIndex], 0x87f00000u, 0x1p120f);
  }
  static HWY_INLINE V16 scale(const std::uint8_t* s) { return set16(ue8m0_to_f32(*s)); }
};

struct Fp4 {
  static constexpr int kGroup = 8, kScaleBytes = 16;
#if HWY_TARGET == HWY_AVX3
  // Values as bf16: one permutation of 16-bit lanes looks up two k's, j in the low halves and j + 4 in the
  // high ones. It looks at five bits of an index, so the table holds everything twice.
  struct Run {
    VU pair[4];
  };
  static HWY_INLINE Run load(const std::uint8_t* p) {
    alignas(64) static constexpr std::uint16_t kTable[32] = {
        0,      0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80,
        0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0, 0,      0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040,
        0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0};
    const __m512i table = _mm512_load_si512(kTable);
    const __m512i u = _mm512_loadu_si512(p),
                  next = _mm512_loadu_si512(p + 1);  // the latter is a shift by eight bits
    return {VU{_mm512_permutexvar_epi16(u, table)},
            VU{_mm512_permutexvar_epi16(_mm512_srli_epi16(u, 4), table)},
            VU{_mm512_permutexvar_epi16(next, table)},
            VU{_mm512_permutexvar_epi16(_mm512_srli_epi16(next, 4), table)}};
  }
  template <int kIndex>
  static HWY_INLINE VF value(const Run& r) {
    return Bf16::value<kIndex / 4>(r.pair[kIndex % 4]);
  }
#else
  using Run = VU;
  static HWY_INLINE Run load(const std::uint8_t* p) {
    return load_run(p);
  }
  template <int kIndex>
  static HWY_INLINE VF value(Run u) {
    if constexpr (kIndex != 7) u = hn::ShiftLeft<28 - 4 * kIndex>(u);
    return from_top<6>(u, 0x81c00000u, 0x1p126f);
  }
#endif
  static HWY_INLINE V16 scale(const std::uint8_t* s) {
    V16 r;
    for (int i = 0; i < kVecs; ++i) r.v[i] = vec_ue8m0(load_bytes(s + i * kVecLanes));
    return r;
  }
};

template <class Format>
struct Group {
  typename Format::Run run[kVecs];
};
template <class Format>
HWY_INLINE Group<Format> load_group(const std::uint8_t* p) {
  Group<Format> g;
  for (int i = 0; i < kVecs; ++i) g.run[i] = Format::load(p + i * 4 * kVecLanes);
  return g;
}
template <class Format, int kIndex>
HWY_INLINE V16 value16(const Group<Format>& g) {
  V16 r;
  for (int i = 0; i < kVecs; ++i) r.v[i] = Format::template value<kIndex>(g.run[i]);
  return r;
}

// fn<0>(), …, fn<n-1>() in order.
template <class Fn, int... kIndex>
HWY_INLINE void unrolled(std::integer_sequence<int, kIndex...>, Fn fn) {
  (fn.template operator()<kIndex>(), ...);
}
template <int kCount>
using Indices = std::make_integer_sequence<int, kCount>;

HWY_INLINE void put(const GemmOutput& out, std::int64_t row, std::int64_t tile, V16 value) {
  const std::int64_t n = tile * 16;
  const V16 v = round16(value, out.bf16);
  float* y = out.y + row * out.stride - out.n_begin;
  if (n >= out.n_begin && n + 16 <= out.n_end) {
    store16(v, y + n);
    return;
  }
  HWY_ALIGN float lanes[16];
  store16(v, lanes);
  for (std::int64_t i = std::max(n, out.n_begin); i < std::min(n + 16, out.n_end); ++i) y[i] = lanes[i - n];
}

// ---- few rows ----

template <class Format, int kRows, int kTiles>
void direct_tiles(const Weight& w, std::int64_t tile, const float* x, std::int64_t rows,
                  const GemmOutput& out) {
  constexpr int kGroup = Format::kGroup;
  constexpr std::int64_t kBlockBytes = std::int64_t{64} * kBlock / kGroup;
  constexpr std::int64_t kAhead = 2048;
  const std::int64_t blocks = (w.k + kBlock - 1) / kBlock;
  const std::uint8_t* codes[kTiles];
  const std::uint8_t* scales[kTiles];
  for (int n = 0; n < kTiles; ++n) {
    codes[n] = w.packed + (tile + n) * blocks * kBlockBytes;
    scales[n] = w.packed_scale + (Format::kScaleBytes != 0 ? (tile + n) * blocks * Format::kScaleBytes : 0);
  }
  V16 acc[kRows][kTiles];
  for (int r = 0; r < kRows; ++r) {
    for (int n = 0; n < kTiles; ++n) acc[r][n] = zero16();
  }
  for (std::int64_t b = 0; b < blocks; ++b) {
    V16 t[kRows][kTiles];
    for (int r = 0; r < kRows; ++r) {
      for (int n = 0; n < kTiles; ++n) t[r][n] = zero16();
    }
    const std::int64_t count = std::min<std::int64_t>(kBlock, w.k - b * kBlock);
    const float* xb = x + b * kBlock * kRows;
    // The next lines of each tile, then the first ones of the tiles that follow these.
    for (int n = 0; n < kTiles; ++n) {
      std::int64_t ahead = (b + kAhead / kBlockBytes) * kBlockBytes;
      if (ahead >= blocks * kBlockBytes) ahead += (kTiles - 1) * blocks * kBlockBytes;
      for (std::int64_t line = 0; line < kBlockBytes; line += 64) hwy::Prefetch(codes[n] + ahead + line);
    }
    const std::int64_t whole = count / kGroup;
    for (std::int64_t g = 0; g < whole; ++g) {
      Group<Format> words[kTiles];
#pragma GCC unroll 4
      for (int n = 0; n < kTiles; ++n) words[n] = load_group<Format>(codes[n] + b * kBlockBytes + g * 64);
      unrolled(Indices<kGroup>(), [&]<int kIndex>() HWY_ATTR {
#pragma GCC unroll 4
        for (int n = 0; n < kTiles; ++n) {
          const V16 v = value16<Format, kIndex>(words[n]);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) t[r][n] = fma16(xb[(g * kGroup + kIndex) * kRows + r], v, t[r][n]);
        }
      });
    }
    if (whole * kGroup < count) {
      for (int n = 0; n < kTiles; ++n) {
        const Group<Format> words = load_group<Format>(codes[n] + b * kBlockBytes + whole * 64);
        unrolled(Indices<kGroup>(), [&]<int kIndex>() HWY_ATTR {
          if (whole * kGroup + kIndex >= count) return;
          const V16 v = value16<Format, kIndex>(words);
          for (int r = 0; r < kRows; ++r)
            t[r][n] = fma16(xb[(whole * kGroup + kIndex) * kRows + r], v, t[r][n]);
        });
      }
    }
    for (int n = 0; n < kTiles; ++n) {
      const V16 s = Format::scale(scales[n] + b * Format::kScaleBytes);
      for (int r = 0; r < kRows; ++r) acc[r][n] = fma16(t[r][n], s, acc[r][n]);
    }
  }
  for (int r = 0; r < kRows && r < rows; ++r) {
    for (int n = 0; n < kTiles; ++n) put(out, r, tile + n, acc[r][n]);
  }
}

template <class Format, int kRows, int kTiles>
void direct_range(const Weight& w, std::int64_t begin, std::int64_t end, const float* x, std::int64_t rows,
                  const GemmOutput& out) {
  std::int64_t tile = begin;
  for (; tile + kTiles <= end; tile += kTiles) direct_tiles<Format, kRows, kTiles>(w, tile, x, rows, out);
  if constexpr (kTiles > 1) {
    for (; tile < end; ++tile) direct_tiles<Format, kRows, 1>(w, tile, x, rows, out);
  }
}

template <class Format>
void direct(const Weight& w, std::int64_t begin, std::int64_t end, const float* x, std::int64_t rows,
            const GemmOutput& out) {
  // Several tiles at once where few rows leave the fma units waiting for their own results.
  if (rows == 1) return direct_range<Format, 1, 4>(w, begin, end, x, rows, out);
  if (rows == 2) return direct_range < Format, 2, kWide ? 4 : 2 > (w, begin, end, x, rows, out);
  if (rows <= 4) return direct_range < Format, 4, kWide ? 2 : 1 > (w, begin, end, x, rows, out);
  if constexpr (kWide) direct_range<Format, 8, 1>(w, begin, end, x, rows, out);
}

// ---- many rows ----

// Panel [kChunk][16 * kPanelTiles], scales [blocks][16 * kPanelTiles].
template <class Format>
void decode_panel(const Weight& w, std::int64_t tile, int tiles, std::int64_t k0, std::int64_t count,
                  float* panel, float* scales) {
  constexpr int kGroup = Format::kGroup;
  constexpr std::int64_t kBlockBytes = std::int64_t{64} * kBlock / kGroup;
  const std::int64_t blocks = (w.k + kBlock - 1) / kBlock;
  for (int n = 0; n < tiles; ++n) {
    const std::int64_t first = (tile + n) * blocks + k0 / kBlock;
    const std::uint8_t* codes = w.packed + first * kBlockBytes;
    float* to = panel + n * 16;
    for (std::int64_t k = 0; k < count;
         k += kGroup) {  // k0 is a multiple of 32 and the packed k is filled up
      const Group<Format> words = load_group<Format>(codes + k / kGroup * 64);
      unrolled(Indices<kGroup>(), [&]<int kIndex>() HWY_ATTR {
        store16(value16<Format, kIndex>(words), to + (k + kIndex) * 16 * kPanelTiles);
      });
    }
    for (std::int64_t b = 0; b * kBlock < count; ++b) {
      const std::uint8_t* s =
          Format::kScaleBytes != 0 ? w.packed_scale + (first + b) * Format::kScaleBytes : nullptr;
      store16(Format::scale(s), scales + b * 16 * kPanelTiles + n * 16);
    }
  }
}

// kRows x (16 * kTiles) outputs over one chunk; acc has rows of 16 * kPanelTiles floats.
template <int kRows, int kTiles>
HWY_INLINE void register_block(const float* HWY_RESTRICT x, const float* HWY_RESTRICT panel,
                               const float* HWY_RESTRICT scales, std::int64_t count, bool first,
                               float* HWY_RESTRICT acc) {
  constexpr int kWidth = 16 * kPanelTiles;
  for (std::int64_t b = 0; b * kBlock < count; ++b) {
    const std::int64_t end = std::min<std::int64_t>(count, (b + 1) * kBlock);
    V16 t[kRows][kTiles];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int n = 0; n < kTiles; ++n) t[r][n] = zero16();
    }
    for (std::int64_t k = b * kBlock; k < end; ++k) {
      V16 v[kTiles];
#pragma GCC unroll 2
      for (int n = 0; n < kTiles; ++n) v[n] = load16(panel + k * kWidth + n * 16);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (int n = 0; n < kTiles; ++n) t[r][n] = fma16(x[k * kRows + r], v[n], t[r][n]);
      }
    }
#pragma GCC unroll 2
    for (int n = 0; n < kTiles; ++n) {
      const V16 s = load16(scales + b * kWidth + n * 16);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        float* a = acc + r * kWidth + n * 16;
        store16(fma16(t[r][n], s, first && b == 0 ? zero16() : load16(a)), a);
      }
    }
  }
}

template <int kTiles>
void panel_rows(const float* packed, std::int64_t rows, std::int64_t k, std::int64_t k0, std::int64_t count,
                const float* panel, const float* scales, float* acc) {
  for (std::int64_t r = 0; r < rows;) {
    const std::int64_t left = rows - r;
    const float* x = packed + r * k;
    float* a = acc + r * 16 * kPanelTiles;
    if (left > kBlockRows - kRowStep) {
      register_block<kBlockRows, kTiles>(x + k0 * kBlockRows, panel, scales, count, k0 == 0, a);
      r += kBlockRows;
    } else if (left > kRowStep) {
      register_block<2 * kRowStep, kTiles>(x + k0 * 2 * kRowStep, panel, scales, count, k0 == 0, a);
      r += 2 * kRowStep;
    } else {
      register_block<kRowStep, kTiles>(x + k0 * kRowStep, panel, scales, count, k0 == 0, a);
      r += kRowStep;
    }
  }
}

template <class Format>
void panel(const Weight& w, std::int64_t begin, std::int64_t end, const float* packed, std::int64_t rows,
           const GemmOutput& out, void* scratch) {
  constexpr int kWidth = 16 * kPanelTiles;
  const int tiles = static_cast<int>(end - begin);
  auto* values = static_cast<float*>(scratch);
  float* scales = values + kChunk * kWidth;
  float* acc = scales + kChunk / kBlock * kWidth;
  for (std::int64_t k0 = 0; k0 < w.k; k0 += kChunk) {
    const std::int64_t count = std::min<std::int64_t>(kChunk, w.k - k0);
    decode_panel<Format>(w, begin, tiles, k0, count, values, scales);
    if (tiles == kPanelTiles) {
      panel_rows<kPanelTiles>(packed, rows, w.k, k0, count, values, scales, acc);
    } else {
      panel_rows<1>(packed, rows, w.k, k0, count, values, scales, acc);
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (int n = 0; n < tiles; ++n) put(out, r, begin + n, load16(acc + r * kWidth + n * 16));
  }
}

// ---- entry points ----

template <class F32Fn, class Bf16Fn, class Fp8Fn, class Fp4Fn>
HWY_INLINE void by_format(WeightFormat format, F32Fn f32, Bf16Fn bf16, Fp8Fn fp8, Fp4Fn fp4) {
  switch (format) {
    case WeightFormat::kF32:
      return f32();
    case WeightFormat::kBf16:
      return bf16();
    case WeightFormat::kFp8:
      return fp8();
    case WeightFormat::kFp4:
      return fp4();
  }
}

}  // namespace

GemmTraits traits() {
  return {kDirectRows, kPanelTiles, kBlockRows};
}

void direct_entry(const Weight& w, std::int64_t begin, std::int64_t end, const float* x, std::int64_t rows,
                  const GemmOutput& out) {
  by_format(
      w.format, [&] { direct<F32>(w, begin, end, x, rows, out); },
      [&] { direct<Bf16>(w, begin, end, x, rows, out); }, [&] { direct<Fp8>(w, begin, end, x, rows, out); },
      [&] { direct<Fp4>(w, begin, end, x, rows, out); });
}

void panel_entry(const Weight& w, std::int64_t begin, std::int64_t end, const float* packed,
                 std::int64_t rows, const GemmOutput& out, void* scratch) {
  by_format(
      w.format, [&] { panel<F32>(w, begin, end, packed, rows, out, scratch); },
      [&] { panel<Bf16>(w, begin, end, packed, rows, out, scratch); },
      [&] { panel<Fp8>(w, begin, end, packed, rows, out, scratch); },
      [&] { panel<Fp4>(w, begin, end, packed, rows, out, scratch); });
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {

HWY_EXPORT(traits);
HWY_EXPORT(direct_entry);
HWY_EXPORT(panel_entry);

GemmTraits gemm_traits() {
  return HWY_DYNAMIC_DISPATCH(traits)();
}

void gemm_direct(const Weight& w, std::int64_t tile_begin, std::int64_t tile_end, const float* packed,
                 std::int64_t rows, const GemmOutput& out) {
  HWY_DYNAMIC_DISPATCH(direct_entry)(w, tile_begin, tile_end, packed, rows, out);
}

namespace {

// Four rows side by side: to[j*width + i] = x[i][j] for j in [0, count).
void interleave4(const float* const* x, std::int64_t count, std::int64_t width, float* to) {
  std::int64_t j = 0;
#if defined(__SSE2__)
  for (; j + 4 <= count; j += 4) {
    __m128 a = _mm_loadu_ps(x[0] + j), b = _mm_loadu_ps(x[1] + j), c = _mm_loadu_ps(x[2] + j),
           d = _mm_loadu_ps(x[3] + j);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to + j * width, a);
    _mm_storeu_ps(to + (j + 1) * width, b);
    _mm_storeu_ps(to + (j + 2) * width, c);
    _mm_storeu_ps(to + (j + 3) * width, d);
  }
#endif
  for (; j < count; ++j) {
    for (std::int64_t i = 0; i < 4; ++i) to[j * width + i] = x[i][j];
  }
}

// `width` rows side by side, those from `rows` on zero.
void interleave(const float* const* x, std::int64_t rows, std::int64_t count, std::int64_t width, float* to) {
  std::int64_t i = 0;
  for (; i + 4 <= rows; i += 4) interleave4(x + i, count, width, to + i);
  for (; i < width; ++i) {
    for (std::int64_t j = 0; j < count; ++j) to[j * width + i] = i < rows ? x[i][j] : 0.0f;
  }
}

// Rows of the register block that starts where `left` rows remain: full blocks, then what panel_rows chooses.
std::int64_t block_rows_for(std::int64_t left, std::int64_t full) {
  const std::int64_t step = full / 3;
  if (left > full - step) return full;
  return left > step ? 2 * step : step;
}

}  // namespace

std::int64_t packed_rows_size(std::int64_t rows, std::int64_t k) {
  return (rows + gemm_traits().block_rows) * k;
}

void gemm_pack_few(const float* const* x, std::int64_t rows, std::int64_t k_begin, std::int64_t k_count,
                   float* packed) {
  const std::int64_t width = rows <= 2 ? rows : rows <= 4 ? 4 : 8;
  interleave(x, rows, k_count, width, packed + k_begin * width);
}

void gemm_pack_rows(const float* const* x, std::int64_t rows, std::int64_t k, std::int64_t k_begin,
                    std::int64_t k_count, float* packed) {
  const std::int64_t full = gemm_traits().block_rows;
  for (std::int64_t r = 0; r < rows;) {
    const std::int64_t block = block_rows_for(rows - r, full);
    interleave(x + r, std::min(block, rows - r), k_count, block, packed + r * k + k_begin * block);
    r += block;
  }
}

void gemm_panel(const Weight& w, std::int64_t tile_begin, std::int64_t tile_end, const float* packed_rows,
                std::int64_t rows, const GemmOutput& out, void* scratch) {
  DI_DCHECK(rows <= kPanelRows && tile_end - tile_begin <= gemm_traits().panel_tiles);
  HWY_DYNAMIC_DISPATCH(panel_entry)(w, tile_begin, tile_end, packed_rows, rows, out, scratch);
}

}  // namespace deepinfer::cpu
#endif  // HWY_ONCE
