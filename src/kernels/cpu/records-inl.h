// Cache records to floats on vectors: decode_record of kernels/cache_format.h, except that a negative zero
// may come out as a positive one (no sum can tell). Codes are what encode_record wrote: NaN codes only under
// a NaN scale.
#include "kernels/cache_format.h"
#include "kernels/cpu/simd-inl.h"

#if defined(DI_KERNELS_RECORDS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DI_KERNELS_RECORDS_INL_H
#undef DI_KERNELS_RECORDS_INL_H
#else
#define DI_KERNELS_RECORDS_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

/// count (a multiple of 16) e4m3 codes times scales, one a block of `block` (a multiple of 16).
HWY_INLINE void decode_e4m3(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t block,
                            std::int64_t count, float* x) {
  const DF d;
  for (std::int64_t i = 0; i < count; i += 16) {
    const VF s = hn::Set(d, ue8m0_to_f32(scales[i / block]));
    for (int j = 0; j < 16; j += kVecLanes) hn::StoreU(hn::Mul(vec_e4m3(codes + i + j), s), d, x + i + j);
  }
}

#if HWY_TARGET != HWY_SCALAR
/// 16 e2m1 codes, one a byte, times a scale.
HWY_INLINE void decode_e2m1_codes(hn::Vec<hn::FixedTag<std::uint8_t, 16>> codes, float scale, float* x) {
  const hn::FixedTag<std::int8_t, 16> d8;
  // Twice the value as a signed byte; half the scale is exact and gives the same product.
  alignas(16) static constexpr std::int8_t kTwice[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                         0, -1, -2, -3, -4, -6, -8, -12};
  const auto twice = hn::TableLookupBytes(hn::Load(d8, kTwice), hn::BitCast(d8, codes));
  alignas(16) std::int8_t values[16];
  hn::Store(twice, d8, values);
  const VF s = hn::Set(DF(), 0.5f * scale);
  const hn::Rebind<std::int8_t, DI> db;
  for (int j = 0; j < 16; j += kVecLanes) {
    const auto wide = hn::PromoteTo(DI(), hn::LoadU(db, values + j));
    hn::StoreU(hn::Mul(hn::ConvertTo(DF(), wide), s), DF(), x + j);
  }
}
#endif

/// count (a multiple of 16) channels of e2m1 pairs; scale(i) is the multiplier of channels [16 i, 16 i + 16).
template <class ScaleOf>
HWY_INLINE void decode_e2m1(const std::uint8_t* pairs, std::int64_t count, ScaleOf scale, float* x) {
#if HWY_TARGET == HWY_SCALAR
  for (std::int64_t i = 0; i < count / 2; ++i) {
    x[2 * i] = e2m1_to_f32(pairs[i] & 15) * scale(i / 8);
    x[2 * i + 1] = e2m1_to_f32(pairs[i] >> 4) * scale(i / 8);
  }
#else
  const hn::FixedTag<std::uint8_t, 16> d8;
  const hn::FixedTag<std::uint16_t, 8> d16;
  const auto nibble = hn::Set(d8, std::uint8_t{15});
  const auto expand = [&](hn::Vec<decltype(d8)> v, std::int64_t i, bool both) HWY_ATTR {
    const auto low = hn::And(v, nibble);
    const auto high = hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, v))), nibble);
    decode_e2m1_codes(hn::InterleaveLower(d8, low, high), scale(i / 16), x + i);
    if (both) decode_e2m1_codes(hn::InterleaveUpper(d8, low, high), scale(i / 16 + 1), x + i + 16);
  };
  std::int64_t i = 0;
  for (; i + 32 <= count; i += 32) expand(hn::LoadU(d8, pairs + i / 2), i, true);
  if (i < count) {
    std::uint64_t rest = 0;
    std::memcpy(&rest, pairs + i / 2, 8);
    expand(hn::BitCast(d8, hn::Set(hn::FixedTag<std::uint64_t, 2>(), rest)), i, false);
  }
#endif
}

/// Can decode_record_16 read this format? (Widths of 16 and whole blocks.)
HWY_INLINE bool has_vector_decoder(const RecordFormat& f) {
  const std::int64_t plain = f.dim - f.rope;
  switch (f.kind) {
    case RecordKind::kF32:
      return true;
    case RecordKind::kFp8Block32:
    case RecordKind::kFp4Block16:
    case RecordKind::kFp4Block32:
      return f.dim % 16 == 0;
    case RecordKind::kFp8Split64:
    case RecordKind::kFp8Split64F32:
      return plain % 16 == 0;
  }
  return false;
}

HWY_INLINE void decode_record_16(const RecordFormat& f, const std::uint8_t* record, float* x) {
  const std::int64_t plain = f.dim - f.rope;
  switch (f.kind) {
    case RecordKind::kF32:
      std::memcpy(x, record, static_cast<std::size_t>(f.dim) * 4);
      return;
    case RecordKind::kFp8Block32:
      decode_e4m3(record, record + f.dim, f.block, f.dim, x);
      return;
    case RecordKind::kFp4Block16: {
      const std::uint8_t* scales = record + f.dim / 2;
      decode_e2m1(
          record, f.dim, [&](std::int64_t i) HWY_ATTR { return e4m3_to_f32(scales[i]); }, x);
      return;
    }
    case RecordKind::kFp4Block32: {
      const std::uint8_t* scales = record + f.dim / 2;
      decode_e2m1(
          record, f.dim, [&](std::int64_t i) HWY_ATTR { return ue8m0_to_f32(scales[i / 2]); }, x);
      return;
    }
    case RecordKind::kFp8Split64:
    case RecordKind::kFp8Split64F32: {
      const std::int64_t blocks = (plain + f.block - 1) / f.block;
      decode_e4m3(record, record + f.bytes - (blocks + 7) / 8 * 8, f.block, plain, x);
      const std::uint8_t* rotated = record + plain;
      if (f.kind == RecordKind::kFp8Split64F32) {
        std::memcpy(x + plain, rotated, static_cast<std::size_t>(f.rope) * 4);
        return;
      }
      for (std::int64_t i = 0; i < f.rope; ++i) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, rotated + 2 * i, 2);
        x[plain + i] = bf16_to_f32(bits);
      }
      return;
    }
  }
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per-target include guard
