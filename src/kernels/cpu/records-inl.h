// Cache records to floats on vectors: decode_record of kernels/cache_format.h, except that a negative zero may come out
// as a positive one (no sum can tell). Codes are what encode_record wrote: NaN codes only under a NaN scale.
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
HWY_INLINE void decode_e4m3(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t block, std::int64_t count,
                            float* x) {
  const DF d;
  for (std::int64_t i = 0; i < count; i += 16) {
    const VF s = hn::Set(d, ue8m0_to_f32(scales[i / block]));
    for (int j = 0; j < 16; j += kVecLanes) hn::StoreU(hn::Mul(vec_e4m3(codes + i + j), s), d, x + i + j);
  }
}

/// 16 channels of e2m1 pairs (8 bytes) times a scale.
HWY_INLINE void decode_e2m1_16(const std::uint8_t* pairs, float scale, float* x) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 8; ++i) {
    x[2 * i] = e2m1_to_f32(pairs[i] & 15) * scale;
    x[2 * i + 1] = e2m1_to_f32(pairs[i] >> 4) * scale;
  }
#else
  const hn::FixedTag<std::uint8_t, 16> d8;
  const hn::FixedTag<std::int8_t, 16> di8;
  // Twice the value as a signed byte; half the scale is exact and gives the same product.
  alignas(16) static constexpr std::int8_t kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  alignas(16) std::uint8_t bytes[16] = {};
  std::memcpy(bytes, pairs, 8);
  const auto v = hn::Load(d8, bytes);
  const auto low = hn::And(v, hn::Set(d8, std::uint8_t{15}));
  const hn::FixedTag<std::uint16_t, 8> d16;
  const auto high = hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, v))), hn::Set(d8, std::uint8_t{15}));
  const auto index = hn::InterleaveLower(d8, low, high);
  const auto twice = hn::TableLookupBytes(hn::Load(di8, kTwice), hn::BitCast(di8, index));
  alignas(16) std::int8_t values[16];
  hn::Store(twice, di8, values);
  const VF s = hn::Set(DF(), 0.5f * scale);
  const hn::Rebind<std::int8_t, DI> db;
  for (int j = 0; j < 16; j += kVecLanes) {
    const auto wide = hn::PromoteTo(DI(), hn::LoadU(db, values + j));
    hn::StoreU(hn::Mul(hn::ConvertTo(DF(), wide), s), DF(), x + j);
  }
#endif
}

/// Can decode_record_16 read this format? (Widths of 16 and whole blocks.)
HWY_INLINE bool has_vector_decoder(const RecordFormat& f) {
  const std::int64_t plain = f.dim - f.rope;
  switch (f.kind) {
    case RecordKind::kF32: return true;
    case RecordKind::kFp8Block32:
    case RecordKind::kFp4Block16:
    case RecordKind::kFp4Block32: return f.dim % 16 == 0;
    case RecordKind::kFp8Split64:
    case RecordKind::kFp8Split64F32: return plain % 16 == 0;
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
      for (std::int64_t i = 0; i < f.dim; i += 16) decode_e2m1_16(record + i / 2, e4m3_to_f32(scales[i / 16]), x + i);
      return;
    }
    case RecordKind::kFp4Block32: {
      const std::uint8_t* scales = record + f.dim / 2;
      for (std::int64_t i = 0; i < f.dim; i += 16) decode_e2m1_16(record + i / 2, ue8m0_to_f32(scales[i / 32]), x + i);
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
