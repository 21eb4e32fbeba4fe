// Micro-benchmarks of the CPU kernels against limits measured in the same run.
//   kernels_bench [--threads N] [--isa avx2] [--seconds S] [--thread-clock] [filter]
// --thread-clock with one thread counts the processor time of the thread, not what a busy neighbour takes away.
// One line a case: best time of the runs, bytes of weights and cache a second against the memory's read rate, operations
// a second against the multiply-add peak.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/limits.h"
#include "kernels/registry.h"
#include "kernels/random_weights.h"

namespace deepinfer {
namespace {

using test::random_values;
using test::random_weight;
using test::zu;

struct Settings {
  int threads = 0;
  double seconds = 0.3;
  std::string filter;
  bool thread_clock = false;
};

double now(bool thread_clock) {
  timespec t{};
  clock_gettime(thread_clock ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

class Bench {
 public:
  explicit Bench(const Settings& settings)
      : threads(settings.threads), settings_(settings), table(make_op_table(KernelChoice::kFast)) {
    bandwidth_ = cpu::measure_read_bandwidth(threads, 1.0);
    peak_ = cpu::measure_fma_peak(threads, 0.5);
    std::printf("threads %d, %s: memory read %.1f GB/s, multiply-add %.1f GFLOP/s\n", threads.thread_count(),
                std::string(cpu::isa_name(cpu::current_isa())).c_str(), bandwidth_ * 1e-9, peak_ * 1e-9);
    std::printf("%-44s %10s %9s %6s %10s %6s\n", "case", "us", "GB/s", "%", "GFLOP/s", "%");
  }

  bool wants(const std::string& name) const { return name.find(settings_.filter) != std::string::npos; }

  /// `run(i)` is called with a growing i, so that a case can walk through data larger than the caches.
  void measure(const std::string& name, double bytes, double flops, const std::function<void(std::int64_t)>& run) {
    double best = 1e30;
    std::int64_t i = 0;
    run(i++);
    const double end = now(false) + settings_.seconds;
    while (i < 4 || now(false) < end) {
      const double start = now(settings_.thread_clock);
      run(i++);
      best = std::min(best, now(settings_.thread_clock) - start);
    }
    std::printf("%-44s %10.1f %9.2f %6.1f %10.2f %6.1f\n", name.c_str(), best * 1e6, bytes / best * 1e-9,
                100 * bytes / best / bandwidth_, flops / best * 1e-9, 100 * flops / best / peak_);
    std::fflush(stdout);
  }

  ThreadPool threads;

 private:
  Settings settings_;
  double bandwidth_ = 0, peak_ = 0;

 public:
  OpTable table;
};

double weight_bytes(const Weight& w) { return static_cast<double>(cpu::packed_size_bytes(w)); }

void bench_linear(Bench& bench) {
  struct Format {
    WeightFormat format;
    const char* name;
  };
  const Format formats[] = {{WeightFormat::kFp4, "fp4"}, {WeightFormat::kFp8, "fp8"}, {WeightFormat::kBf16, "bf16"}, {WeightFormat::kF32, "f32"}};
  struct Shape {
    std::int64_t n, k;
    bool cached;  // one small matrix again and again: arithmetic alone
  };
  const Shape shapes[] = {{4096, 4096, false}, {512, 1024, true}};
  for (const Format& f : formats)
  for (const Shape& shape : shapes) {
    const std::int64_t kN = shape.n, kK = shape.k;
    if (!bench.wants(std::string("linear ") + f.name)) continue;
    std::mt19937 rng(1);
    // Several matrices in turn, together far larger than the caches.
    std::vector<test::OwnedWeight> weights;
    double total = 0;
    while (weights.empty() || (!shape.cached && total < 128e6)) {
      weights.push_back(random_weight(rng, f.format, kN, kK));
      total += weight_bytes(weights.back().view);
    }
    for (const std::int64_t rows : {1, 2, 4, 8, 16, 32, 64, 512}) {
      const std::vector<float> x = random_values(rng, rows * kK);
      std::vector<float> y(zu(rows * kN));
      bench.measure("linear " + std::string(f.name) + " " + std::to_string(kN) + "x" + std::to_string(kK) +
                        (shape.cached ? " in cache, rows " : ", rows ") + std::to_string(rows),
                    weight_bytes(weights[0].view), 2.0 * static_cast<double>(rows * kN * kK), [&](std::int64_t i) {
                      const auto& w = weights[zu(i) % weights.size()];
                      bench.table.linear({&bench.threads}, {x.data(), kK, w.view, y.data(), kN, rows, Round::kNone});
                    });
    }
  }
}

// One mixture-of-experts layer of the given shape with random routes.
void bench_experts(Bench& bench) {
  struct Shape {
    const char* name;
    std::int64_t experts, top_k, dim, inner;
  };
  for (const Shape& s : {Shape{"experts 64 x 512 top-6, dim 1024", 64, 6, 1024, 512}}) {
    if (!bench.wants(s.name)) continue;
    std::mt19937 rng(1);
    // Two layers in turn, so that batch 1 does not find its weights in the cache.
    std::vector<test::OwnedWeight> owned;
    owned.reserve(zu(3 * 4 * (s.experts + 1)));
    std::vector<std::vector<ExpertWeights>> layers(4);
    for (auto& layer : layers) {
      for (std::int64_t e = 0; e <= s.experts; ++e) {
        ExpertWeights unit;
        for (Weight* w : {&unit.w1, &unit.w3, &unit.w2}) {
          const bool down = w == &unit.w2;
          owned.push_back(random_weight(rng, e < s.experts ? WeightFormat::kFp4 : WeightFormat::kFp8, down ? s.dim : s.inner,
                                        down ? s.inner : s.dim));
          *w = owned.back().view;
        }
        layer.push_back(unit);
      }
    }
    const auto unit_bytes = [](const ExpertWeights& e) {
      return weight_bytes(e.w1) + weight_bytes(e.w3) + weight_bytes(e.w2);
    };
    for (const std::int64_t rows : {1, 2, 8, 32, 128, 512}) {
      const std::vector<float> x = random_values(rng, rows * s.dim);
      const std::vector<float> weight = random_values(rng, rows * s.top_k);
      // Different routes in every run.
      std::vector<std::vector<std::int32_t>> routes(8);
      double experts_hit = 0;
      for (auto& chosen : routes) {
        std::vector<bool> hit(zu(s.experts));
        for (std::int64_t t = 0; t < rows; ++t) {
          std::vector<std::int32_t> order(zu(s.experts));
          for (std::size_t e = 0; e < order.size(); ++e) order[e] = static_cast<std::int32_t>(e);
          std::shuffle(order.begin(), order.end(), rng);
          std::sort(order.begin(), order.begin() + s.top_k);
          chosen.insert(chosen.end(), order.begin(), order.begin() + s.top_k);
          for (std::int64_t k = 0; k < s.top_k; ++k) hit[zu(order[zu(k)])] = true;
        }
        experts_hit += static_cast<double>(std::count(hit.begin(), hit.end(), true)) / 8;
      }
      std::vector<float> out(zu(rows * s.dim));
      const double bytes = experts_hit * unit_bytes(layers[0][0]) + unit_bytes(layers[0].back());
      const double flops = 6.0 * static_cast<double>(rows * (s.top_k + 1) * s.dim * s.inner);
      bench.measure(std::string(s.name) + ", rows " + std::to_string(rows), bytes, flops, [&](std::int64_t i) {
        const auto& layer = layers[zu(i) % layers.size()];
        bench.table.experts({&bench.threads},
                            {x.data(), std::span(layer).first(zu(s.experts)), &layer.back(), routes[zu(i / 4) % 8].data(),
                             weight.data(), rows, s.top_k, s.dim, s.inner, 10.0f, 32, out.data(), Round::kBf16});
      });
    }
  }
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) {
  deepinfer::Settings settings;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
      settings.threads = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
      settings.seconds = std::atof(argv[++i]);
    } else if (std::strcmp(argv[i], "--isa") == 0 && i + 1 < argc) {
      ++i;
      for (const auto isa : deepinfer::cpu::available_isas()) {
        if (deepinfer::cpu::isa_name(isa) == argv[i]) deepinfer::cpu::limit_isa(isa);
      }
    } else if (std::strcmp(argv[i], "--thread-clock") == 0) {
      settings.thread_clock = true;
    } else {
      settings.filter = argv[i];
    }
  }
  deepinfer::Bench bench(settings);
  deepinfer::bench_linear(bench);
  deepinfer::bench_experts(bench);
  return 0;
}
