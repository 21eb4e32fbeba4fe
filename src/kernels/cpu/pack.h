// Weights in the order the CPU kernels read them. The n output rows are cut into tiles of 16 (the last one
// filled up with zero rows), k is filled up with zeros to a multiple of 32. A tile is a run of 32-bit words,
// 16 rows side by side:
//   kFp4   word [k/8][row]: eight codes, k ascending from the low nibble     (256 bytes a block of 32 k)
//   kFp8   word [k/4][row]: four codes, k ascending from the low byte        (512 bytes)
//   kBf16  word [k/2][row]: two values, the even k in the low half           (1024 bytes)
//   kF32   word [k][row]                                                     (2048 bytes)
// so that one vector load brings the same k's of 16 outputs and a shift isolates one of them. Loads may start
// three bytes before a tile and end one after it: both are inside the packed memory. Scales stay ue8m0 bytes:
// a packed weight is as large as the stored one (FP8: smaller, its scales are shared by whole tiles) plus a
// cache line.
//
// A NaN code in an FP8 weight makes the scale of its tile and block NaN: decoding does without a NaN test,
// and a broken weight still shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/weight.h"

namespace deepinfer {
class ThreadPool;
}

namespace deepinfer::cpu {

/// Alignment of packed weights and of every kernel scratch area: a cache line.
inline constexpr std::size_t kAlignment = 64;

/// Bytes pack_weight() fills for this weight, a multiple of kAlignment.
std::size_t packed_size_bytes(const Weight& weight);

/// Writes the packed form of `weight` (as stored: data and scale set) to `out`, which must be aligned and
/// exactly packed_size_bytes long and must live as long as the result. The result has `packed` and
/// `packed_scale` set; `data` and `scale` still point to the stored form. `threads` may be null.
Weight pack_weight(const Weight& weight, std::span<std::uint8_t> out, ThreadPool* threads);

/// Anonymous memory for packed weights, zero at first: whole 2 MiB pages where the system grants them.
/// Move-only.
class PackedMemory {
 public:
  PackedMemory() = default;
  /// Stops the process if the system has no address space left; pages are taken when first written.
  explicit PackedMemory(std::size_t size_bytes);
  ~PackedMemory();
  PackedMemory(PackedMemory&& other) noexcept;
  PackedMemory& operator=(PackedMemory&& other) noexcept;

  std::span<std::uint8_t> bytes() const { return {data_, size_}; }

 private:
  std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace deepinfer::cpu
