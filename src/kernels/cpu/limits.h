// What this machine can do at most, measured: the yardsticks of every benchmark figure. Each call takes about
// the time asked for and uses all threads of the pool.
#pragma once

namespace deepinfer {
class ThreadPool;
}

namespace deepinfer::cpu {

/// Bytes a second read from memory by plain vector loads over an area far larger than the caches (best of
/// several passes).
double measure_read_bandwidth(ThreadPool& threads, double seconds);

/// fp32 operations a second (a fused multiply-add is two) of independent chains in registers, best of several
/// passes.
double measure_fma_peak(ThreadPool& threads, double seconds);

}  // namespace deepinfer::cpu
