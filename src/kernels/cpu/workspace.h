// Scratch memory of the calling thread: grows to the largest size ever asked for, lives as long as the
// thread. After the first steps no kernel allocates. Areas of different purposes never overlap; two nested
// users of one purpose would.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deepinfer::cpu {

enum class Scratch {
  kPacked,  // rows in gemm order (calling thread of an operator)
  kGather,  // intermediate activations of the experts (calling thread)
  kPlan,    // index lists (calling thread)
  kPanel,   // decoded weights and accumulators (each worker)
  kKeys,    // decoded cache records (each worker)
  kScores,  // logits of one row or tile (each worker)
};
inline constexpr std::size_t kScratchCount = 6;

/// At least `bytes` of uninitialised memory aligned to a cache line, valid until the thread's next call for
/// `purpose`.
void* scratch_bytes(Scratch purpose, std::size_t bytes);

template <class T>
T* scratch(Scratch purpose, std::int64_t count) {
  return static_cast<T*>(scratch_bytes(purpose, static_cast<std::size_t>(count) * sizeof(T)));
}

}  // namespace deepinfer::cpu
