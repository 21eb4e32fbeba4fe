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
  std::atomic<std::uint32_t> epoch{0};  // one more for each loop; idle workers wait on it
  // kOpen while the present loop may be joined, plus the number of workers inside it.
  std::atomic<std::uint32_t> gate{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;

  static constexpr std::uint32_t kOpen = 0x80000000u;

  void take_pieces(int thread) {
    for (;;) {
      const std::int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      (*body)(begin, std::min(begin + grain, count), thread);
    }
  }

  // Joins the loop that is open now, whichever it is; does nothing if the others have already finished it.
  void join(int thread) {
    std::uint32_t g = gate.load(std::memory_order_acquire);
    do {
      if ((g & kOpen) == 0) return;
    } while (!gate.compare_exchange_weak(g, g + 1, std::memory_order_acq_rel, std::memory_order_acquire));
    take_pieces(thread);
    if (gate.fetch_sub(1, std::memory_order_acq_rel) == 1)
      gate.notify_one();  // closed, and the last to leave
  }

  void work(int thread) {
    std::uint32_t seen = 0;
    for (;;) {
      int spins = 0;
      while (epoch.load(std::memory_order_acquire) == seen) {
        if (++spins < kSpinCount)
          cpu_relax();
        else
          epoch.wait(seen, std::memory_order_acquire);
      }
      seen = epoch.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
      join(thread);
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

int ThreadPool::thread_count() const {
  return static_cast<int>(state_->workers.size()) + 1;
}

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
  s.gate.store(State::kOpen, std::memory_order_release);
  s.epoch.fetch_add(1, std::memory_order_acq_rel);
  s.epoch.notify_all();
  s.take_pieces(0);
  // No piece is left: who has not come yet need not come, so a worker whose core is busy elsewhere delays
  // nobody.
  std::uint32_t g = s.gate.fetch_and(~State::kOpen, std::memory_order_acq_rel) & ~State::kOpen;
  for (int spins = 0; g != 0; g = s.gate.load(std::memory_order_acquire)) {
    if (++spins < kSpinCount)
      cpu_relax();
    else
      s.gate.wait(g, std::memory_order_acquire);
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
    std::ifstream siblings("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                           "/topology/thread_siblings_list");
    std::string line;
    if (!std::getline(siblings, line)) line = "cpu" + std::to_string(cpu);
    cores.insert(line);
  }
  return std::max(1, static_cast<int>(cores.size()));
}

}  // namespace deepinfer
