// A fixed set of workers for data-parallel loops. The calling thread takes part; idle workers sleep in the
// kernel after a short wait, so a busy neighbour on the machine is not fought for its core. Work is split
// into pieces whose borders the caller fixes, and no piece depends on another: results cannot depend on the
// number of threads.
//
// One parallel_for at a time (calls from several threads are serialised); it must not be nested.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace deepinfer {

class ThreadPool {
 public:
  /// `threads` >= 1 counts the caller: 1 means no worker at all. 0 chooses physical_core_count().
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int thread_count() const;

  /// Calls body(begin, end, thread) for pieces [0, grain), [grain, 2 grain), … covering [0, count), in any
  /// order and on any thread; `thread` < thread_count() indexes per-thread scratch. Returns when all are
  /// done.
  void parallel_for(std::int64_t count, std::int64_t grain,
                    const std::function<void(std::int64_t, std::int64_t, int)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Physical cores this process may run on: SMT siblings count once; at least 1. Linux: sched_getaffinity and
/// /sys/devices/system/cpu; elsewhere std::thread::hardware_concurrency().
int physical_core_count();

}  // namespace deepinfer
