// How one cache record (a window key, a pool entry, an index key) is stored. Rounding is part of the model: a
// value that went through encode() and decode() is what attention must see, whether it comes from the cache
// or is fresh.
#pragma once

#include <cstdint>

namespace deepinfer {

enum class RecordKind {
  kF32,         // dim floats, no rounding
  kFp8Block32,  // dim e4m3 codes, then dim/32 ue8m0 bytes (V4.1 window)
  kFp4Block16,  // dim/2 bytes of e2m1 pairs, then dim/16 e4m3 scales (V4.1 pools)
  kFp4Block32,  // dim/2 bytes of e2m1 pairs, then dim/32 ue8m0 bytes (index keys)
  kFp8Split64,  // dim-rope e4m3 codes, rope bf16, (dim-rope)/64 ue8m0 bytes rounded up to whole 8 bytes (V4)
  kFp8Split64F32,  // the same with the rope channels in fp32 (V4 with fp32 activations)
};

/// A kind with its sizes. `bytes` is the length of one record.
struct RecordFormat {
  RecordKind kind = RecordKind::kF32;
  std::int64_t dim = 0;
  std::int64_t rope = 0;   ///< channels at the end that kFp8Split64 leaves unquantised
  std::int64_t block = 0;  ///< channels a scale covers; smaller than the name says only if dim is smaller
  std::int64_t bytes = 0;
};

/// Checks that dim suits the kind and computes the sizes.
RecordFormat make_record_format(RecordKind kind, std::int64_t dim, std::int64_t rope = 0);

/// x [dim] -> record [bytes].
void encode_record(const RecordFormat& format, const float* x, std::uint8_t* record);
/// record -> x [dim].
void decode_record(const RecordFormat& format, const std::uint8_t* record, float* x);

}  // namespace deepinfer
