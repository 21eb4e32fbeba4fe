// A weight matrix as an operator sees it: N output rows of K inputs in a stored number format, with its
// scales. A view: the bytes belong to the checkpoint mapping or to a packed copy that the model keeps.
#pragma once

#include <cstdint>

namespace deepinfer {

enum class WeightFormat {
  kF32,
  kBf16,
  kFp8,  // e4m3 with one ue8m0 multiplier per scale_block x scale_block tile
  kFp4,  // e2m1, two per byte along K (even k in the low nibble), one ue8m0 multiplier per row and 32 values
         // of K
};

/// Columns of K per accumulation block; every linear operator sums 32 products, scales, then adds.
inline constexpr std::int64_t kAccumulateBlock = 32;
/// Output rows side by side in the packed layout (kernels/cpu/pack.h).
inline constexpr std::int64_t kPackRows = 16;

struct Weight {
  WeightFormat format = WeightFormat::kF32;
  std::int64_t n = 0;
  std::int64_t k = 0;
  const std::uint8_t* data =
      nullptr;  ///< row-major as stored [n, k] (kFp4: [n, k/2]); may be null once packed
  const std::uint8_t* scale = nullptr;   ///< kFp8: [ceil(n/B), ceil(k/B)]; kFp4: [n, k/32]
  std::int64_t scale_block = 0;          ///< B of kFp8: 32 or 128
  const std::uint8_t* packed = nullptr;  ///< the same values in tile order, or null
  const std::uint8_t* packed_scale =
      nullptr;  ///< ue8m0 multipliers of the tiles: kFp8 [ceil(n/16), ceil(k/32)], one for
                ///< the 16 rows; kFp4 [ceil(n/16), ceil(k/32), 16]; null otherwise
};

}  // namespace deepinfer
