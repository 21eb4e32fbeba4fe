#include "kernels/cpu/limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>

#include "base/thread_pool.h"
#include "kernels/cpu/pack.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/limits.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

// Reads everything; the returned value depends on all of it, so that nothing is left out.
float read_all(const float* p, std::int64_t count) {
  constexpr int kLines = 4;
  V16 acc[kLines];
  for (V16& a : acc) a = zero16();
  for (std::int64_t i = 0; i + 16 * kLines <= count; i += 16 * kLines) {
#pragma GCC unroll 4
    for (int j = 0; j < kLines; ++j) acc[j] = add16(acc[j], load16(p + i + 16 * j));
  }
  float sum = 0;
  for (const V16& a : acc) sum += sum16(a);
  return sum;
}

// `rounds` times 12 independent multiply-adds of 16 lanes.
float fma_chains(std::int64_t rounds) {
  constexpr int kChains = 12 / (kVecs > 2 ? 2 : kVecs);  // as many registers on every target
  V16 acc[kChains];
  for (int i = 0; i < kChains; ++i) acc[i] = set16(static_cast<float>(i));
  const V16 a = set16(0.999f), b = set16(0.001f);
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) acc[i] = fma16(acc[i], a, b);
  }
  float sum = 0;
  for (const V16& x : acc) sum += sum16(x);
  return sum;
}

std::int64_t fma_chain_count() {
  return 12 / (kVecs > 2 ? 2 : kVecs);
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {

HWY_EXPORT(read_all);
HWY_EXPORT(fma_chains);
HWY_EXPORT(fma_chain_count);

namespace {

// Keeps results alive without printing them.
std::atomic<float> sink;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Shortest time of one pass within the given span of time, at least three passes.
double best_pass(double seconds, const std::function<void()>& pass) {
  double best = 1e30;
  const double end = now() + seconds;
  for (int i = 0; i < 3 || now() < end; ++i) {
    const double start = now();
    pass();
    best = std::min(best, now() - start);
  }
  return best;
}

}  // namespace

double measure_read_bandwidth(ThreadPool& threads, double seconds) {
  const std::int64_t parts = threads.thread_count();
  const std::int64_t floats = std::int64_t{32} << 20;  // 128 MiB a thread
  PackedMemory memory(static_cast<std::size_t>(parts * floats) * 4);
  std::memset(memory.bytes().data(), 0, memory.bytes().size());
  const auto* data = reinterpret_cast<const float*>(memory.bytes().data());
  const auto part = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i)
      sink = HWY_DYNAMIC_DISPATCH(read_all)(data + i * floats, floats);
  };
  const double time = best_pass(seconds, [&] { threads.parallel_for(parts, 1, std::ref(part)); });
  return static_cast<double>(parts * floats * 4) / time;
}

double measure_fma_peak(ThreadPool& threads, double seconds) {
  const std::int64_t parts = threads.thread_count();
  constexpr std::int64_t kRounds = 200000;
  const auto part = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) sink = HWY_DYNAMIC_DISPATCH(fma_chains)(kRounds);
  };
  const double time = best_pass(seconds, [&] { threads.parallel_for(parts, 1, std::ref(part)); });
  const double chains = static_cast<double>(HWY_DYNAMIC_DISPATCH(fma_chain_count)());
  return static_cast<double>(parts * kRounds) * chains * 16 * 2 / time;
}

}  // namespace deepinfer::cpu
#endif  // HWY_ONCE
