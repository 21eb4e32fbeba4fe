// Micro-benchmarks of the CPU kernels against limits measured in the same run.
//   kernels_bench [--threads N] [--isa avx2] [--seconds S] [--thread-clock] [filter]
// --thread-clock with one thread counts the processor time of the thread, not what a busy neighbour takes
// away. One line a case: best time of the runs, bytes of weights and cache a second against the memory's read
// rate, operations a second against the multiply-add peak.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "kernels/cost.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/limits.h"
#include "kernels/registry.h"
#include "kernels/step_fixture.h"

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
  void measure(const std::string& name, const OpCost& cost, const std::function<void(std::int64_t)>& run) {
    const double bytes = cost.bytes, flops = cost.flops;
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

void bench_linear(Bench& bench) {
  struct Format {
    WeightFormat format;
    const char* name;
  };
  const Format formats[] = {{WeightFormat::kFp4, "fp4"},
                            {WeightFormat::kFp8, "fp8"},
                            {WeightFormat::kBf16, "bf16"},
                            {WeightFormat::kF32, "f32"}};
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
        bench.measure(
            "linear " + std::string(f.name) + " " + std::to_string(kN) + "x" + std::to_string(kK) +
                (shape.cached ? " in cache, rows " : ", rows ") + std::to_string(rows),
            cost(LinearOp{x.data(), kK, weights[0].view, y.data(), kN, rows, Round::kNone}),
            [&](std::int64_t i) {
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
          owned.push_back(random_weight(rng, e < s.experts ? WeightFormat::kFp4 : WeightFormat::kFp8,
                                        down ? s.dim : s.inner, down ? s.inner : s.dim));
          *w = owned.back().view;
        }
        layer.push_back(unit);
      }
    }
    for (const std::int64_t rows : {1, 2, 8, 32, 128, 512}) {
      const std::vector<float> x = random_values(rng, rows * s.dim);
      const std::vector<float> weight = random_values(rng, rows * s.top_k);
      // Different routes in every run.
      std::vector<std::vector<std::int32_t>> routes(8);
      for (auto& chosen : routes) {
        for (std::int64_t t = 0; t < rows; ++t) {
          std::vector<std::int32_t> order(zu(s.experts));
          for (std::size_t e = 0; e < order.size(); ++e) order[e] = static_cast<std::int32_t>(e);
          std::shuffle(order.begin(), order.end(), rng);
          std::sort(order.begin(), order.begin() + s.top_k);
          chosen.insert(chosen.end(), order.begin(), order.begin() + s.top_k);
        }
      }
      std::vector<float> out(zu(rows * s.dim));
      const auto op = [&](std::int64_t i) {
        const auto& layer = layers[zu(i) % layers.size()];
        return ExpertsOp{x.data(),
                         std::span(layer).first(zu(s.experts)),
                         &layer.back(),
                         routes[zu(i / 4) % 8].data(),
                         weight.data(),
                         rows,
                         s.top_k,
                         s.dim,
                         s.inner,
                         10.0f,
                         32,
                         out.data(),
                         Round::kBf16};
      };
      OpCost mean;
      for (std::int64_t i = 0; i < 32; ++i) {
        mean.bytes += cost(op(i)).bytes / 32;
        mean.flops += cost(op(i)).flops / 32;
      }
      bench.measure(std::string(s.name) + ", rows " + std::to_string(rows), mean,
                    [&](std::int64_t i) { bench.table.experts({&bench.threads}, op(i)); });
    }
  }
}

// Attention of one layer: 16 heads of 128 (v41-mini) and 64 heads of 512 (V4.1) over the window and 512
// selected entries.
void bench_attention(Bench& bench) {
  struct Shape {
    std::int64_t heads, dim;
  };
  for (const Shape& s : {Shape{16, 128}, Shape{64, 512}}) {
    for (const std::int64_t rows : {1, 8, 256}) {
      const std::string name = "attention " + std::to_string(s.heads) + "x" + std::to_string(s.dim) +
                               ", 128+512 keys, rows " + std::to_string(rows);
      if (!bench.wants(name)) continue;
      std::mt19937 rng(1);
      // One sequence of 256 rows, or sequences of one row.
      std::vector<test::SequenceShape> shapes(zu(rows == 256 ? 1 : rows), {2048, rows == 256 ? 256 : 1});
      test::StepFixture f(rng, shapes);
      test::OwnedWindow ring(rng, make_record_format(RecordKind::kFp8Block32, s.dim),
                             static_cast<std::int64_t>(shapes.size()), 128);
      test::OwnedPool pool(rng, make_record_format(RecordKind::kFp4Block16, s.dim), f.block_count(), 1);
      const std::vector<float> q = random_values(rng, f.step.rows * s.heads * s.dim),
                               fresh = random_values(rng, f.step.rows * s.dim);
      const std::vector<float> sink = random_values(rng, s.heads);
      std::vector<float> o(q.size());
      std::vector<std::int32_t> selected(zu(f.step.rows * 512)), count(zu(f.step.rows), 512);
      for (std::size_t i = 0; i < selected.size(); ++i)
        selected[i] = static_cast<std::int32_t>(i % 512 * 4 + rng() % 4);
      const AttentionOp op{q.data(),    o.data(),        s.heads,      s.dim,        0.05f,
                           sink.data(), &f.step,         128,          fresh.data(), ring.window,
                           pool.pool,   selected.data(), count.data(), 512,          Round::kBf16};
      bench.measure(name, cost(op), [&](std::int64_t) { bench.table.attention({&bench.threads}, op); });
    }
  }
}

// Index scores over a long history and the best 512 of them.
void bench_index(Bench& bench) {
  struct Shape {
    std::int64_t heads, dim, position, rows;
  };
  for (const Shape& s : {Shape{8, 64, 8192, 1}, Shape{8, 64, 8192, 128}, Shape{64, 128, 32768, 1},
                         Shape{64, 128, 16384, 16}}) {
    const std::string name = "index_select " + std::to_string(s.heads) + "x" + std::to_string(s.dim) + ", " +
                             std::to_string(s.position) + " entries, rows " + std::to_string(s.rows);
    if (!bench.wants(name)) continue;
    std::mt19937 rng(1);
    test::StepFixture f(rng, {{s.position, s.rows}});
    test::OwnedPool keys(rng, make_record_format(RecordKind::kFp4Block32, s.dim), f.block_count(), 1);
    const std::vector<float> q = random_values(rng, s.rows * s.heads * s.dim),
                             weight = random_values(rng, s.rows * s.heads);
    std::vector<std::int32_t> selected(zu(s.rows * 512)), count(zu(s.rows));
    const IndexSelectOp op{q.data(),  weight.data(), s.heads,         s.dim,        &f.step,
                           keys.pool, 512,           selected.data(), count.data(), 0,
                           0,         nullptr,       nullptr,         nullptr,      nullptr};
    bench.measure(name, cost(op), [&](std::int64_t) { bench.table.index_select({&bench.threads}, op); });
  }
}

// The operators that mostly move activations, 1024 wide.
void bench_rows(Bench& bench) {
  constexpr std::int64_t kDim = 1024;
  std::mt19937 rng(1);
  for (const std::int64_t rows : {1, 512}) {
    const std::string suffix = " 1024, rows " + std::to_string(rows);
    std::vector<float> x = random_values(rng, rows * 4 * kDim), u(zu(rows * kDim));
    const std::vector<float> fn = random_values(rng, 24 * 4 * kDim, 0.1f),
                             weight = random_values(rng, 4 * kDim);
    std::vector<float> mix = random_values(rng, rows * 24, 0.2f);
    const auto run = [&](const std::string& name, const auto& op, auto function) {
      if (bench.wants(name))
        bench.measure(name + suffix, cost(op), [&](std::int64_t) { function({&bench.threads}, op); });
    };
    run("hyper_mix",
        HyperMixOp{x.data(), fn.data(), weight.data(), weight.data(), mix.data(), mix.data() + rows * 4,
                   mix.data() + rows * 8, rows, kDim, 1e-6f, 1e-6f, 20},
        bench.table.hyper_mix);
    run("hyper_collapse", HyperCollapseOp{x.data(), mix.data(), u.data(), rows, kDim, Round::kBf16},
        bench.table.hyper_collapse);
    run("rms_norm", RmsNormOp{u.data(), u.data(), kDim, rows, 1, kDim, weight.data(), 1e-6f, Round::kBf16},
        bench.table.rms_norm);
    run("quantize", QuantizeOp{u.data(), u.data(), rows, kDim, 32}, bench.table.quantize);
    run("cache_round", CacheRoundOp{u.data(), rows, make_record_format(RecordKind::kFp8Block32, kDim)},
        bench.table.cache_round);
    std::vector<float> y = x;
    run("hyper_expand",
        HyperExpandOp{u.data(), mix.data(), mix.data() + rows * 4, y.data(), rows, kDim, Round::kBf16},
        bench.table.hyper_expand);
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
  deepinfer::bench_attention(bench);
  deepinfer::bench_index(bench);
  deepinfer::bench_rows(bench);
  return 0;
}
