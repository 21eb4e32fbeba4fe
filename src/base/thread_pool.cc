#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"

namespace deepinfer {
namespace {

// How long a worker looks for the next loop before it sleeps: about the gap between two operators of a step.
constexpr int kSpinCount = 2000;

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

struct ThreadPool::State {
  std::mutex caller;  // serialises parallel_for
  const std::function<void(std::int64_t, std::int64_t, int)>* body = nullptr;
  std::int64_t count = 0;
  std::int64_t grain = 1;
  std::atomic<std::int64_t> next{0};
  std::atomic<std::uint32_t> epoch{0};   // one more for each loop; workers wait on it
  std::atomic<std::uint32_t> active{0};  // workers still inside the present loop
  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;

  void take_pieces(int thread) {
    for (;;) {
      const std::int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      (*body)(begin, std::min(begin + grain, count), thread);
    }
  }

  void work(int thread) {
    std::uint32_t seen = 0;
    for (;;) {
      int spins = 0;
      while (epoch.load(std::memory_order_acquire) == seen) {
        if (++spins < kSpinCount) cpu_relax();
        else epoch.wait(seen, std::memory_order_acquire);
      }
      ++seen;
      if (stop.load(std::memory_order_acquire)) return;
      take_pieces(thread);
      if (active.fetch_sub(1, std::memory_order_acq_rel) == 1) active.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  DI_CHECK(threads >= 0, "negative thread count");
  const int total = threads == 0 ? physical_core_count() : threads;
  for (int t = 1; t < total; ++t) state_->workers.emplace_back([s = state_.get(), t] { s->work(t); });
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true, std::memory_order_release);
  state_->epoch.fetch_add(1, std::memory_order_acq_rel);
  state_->epoch.notify_all();
  for (std::thread& t : state_->workers) t.join();
}

int ThreadPool::thread_count() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::parallel_for(std::int64_t count, std::int64_t grain,
                              const std::function<void(std::int64_t, std::int64_t, int)>& body) {
  if (count <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  State& s = *state_;
  const std::lock_guard<std::mutex> lock(s.caller);
  if (s.workers.empty() || count <= grain) {
    for (std::int64_t b = 0; b < count; b += grain) body(b, std::min(b + grain, count), 0);
    return;
  }
  s.body = &body;
  s.count = count;
  s.grain = grain;
  s.next.store(0, std::memory_order_relaxed);
  s.active.store(static_cast<std::uint32_t>(s.workers.size()), std::memory_order_relaxed);
  s.epoch.fetch_add(1, std::memory_order_acq_rel);
  s.epoch.notify_all();
  s.take_pieces(0);
  int spins = 0;
  for (std::uint32_t left; (left = s.active.load(std::memory_order_acquire)) != 0;) {
    if (++spins < kSpinCount) cpu_relax();
    else s.active.wait(left, std::memory_order_acquire);
  }
  s.body = nullptr;
}

int physical_core_count() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
    return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  }
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    std::ifstream siblings("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    std::string line;
    if (!std::getline(siblings, line)) line = "cpu" + std::to_string(cpu);
    cores.insert(line);
  }
  return std::max(1, static_cast<int>(cores.size()));
}

}  // namespace deepinfer
