// Routed experts on packed weights against the reference, bit for bit.
#include <numeric>

#include "cpu_test.h"
#include "kernels/cpu/cpu.h"
#include "kernels/ref/ref.h"

namespace deepinfer {
namespace {

using test::first_difference;
using test::random_values;
using test::random_weight;
using test::zu;

class CpuExperts : public test::CpuKernelTest {};

struct Layer {
  std::vector<test::OwnedWeight> owned;
  std::vector<ExpertWeights> experts;
  ExpertWeights shared;
};

Layer random_layer(std::mt19937& rng, WeightFormat routed, WeightFormat shared, std::int64_t experts,
                   std::int64_t dim, std::int64_t inner) {
  Layer layer;
  layer.owned.reserve(zu(3 * (experts + 1)));
  const auto unit = [&](WeightFormat format) {
    ExpertWeights e;
    for (Weight* w : {&e.w1, &e.w3, &e.w2}) {
      const bool down = w == &e.w2;
      layer.owned.push_back(random_weight(rng, format, down ? dim : inner, down ? inner : dim));
      *w = layer.owned.back().view;
    }
    return e;
  };
  for (std::int64_t e = 0; e < experts; ++e) layer.experts.push_back(unit(routed));
  layer.shared = unit(shared);
  return layer;
}

struct Case {
  std::int64_t experts, top_k, dim, inner, rows;
  std::int64_t quantize_block;
  bool shared;
  Round round;
};

// Rows pile up on the first experts: some get none, some nearly all.
std::vector<std::int32_t> random_routes(std::mt19937& rng, const Case& c) {
  std::vector<std::int32_t> chosen;
  for (std::int64_t t = 0; t < c.rows; ++t) {
    std::vector<std::int32_t> order(zu(c.experts));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng);
    if (rng() % 3 != 0) std::swap(order[0], *std::find(order.begin(), order.end(), 0));
    std::sort(order.begin(), order.begin() + c.top_k);
    chosen.insert(chosen.end(), order.begin(), order.begin() + c.top_k);
  }
  return chosen;
}

TEST_P(CpuExperts, EqualsReferenceForEveryThreadCountAndBatch) {
  const Case cases[] = {
      {4, 2, 64, 32, 1, 0, true, Round::kNone},      {24, 4, 96, 96, 3, 32, true, Round::kBf16},
      {8, 2, 128, 160, 9, 32, false, Round::kBf16},  {6, 3, 96, 64, 40, 32, true, Round::kBf16},
      {16, 2, 64, 128, 25, 128, true, Round::kBf16}, {5, 1, 32, 96, 230, 0, true, Round::kNone},
      {3, 2, 96, 288, 14, 128, true, Round::kBf16},
  };
  ThreadPool one(1), two(2), three(3);
  std::uint32_t seed = 500;
  for (const Case& c : cases) {
    for (const WeightFormat format : {WeightFormat::kFp4, WeightFormat::kFp8, WeightFormat::kBf16}) {
      std::mt19937 rng = seeded(++seed);
      const WeightFormat shared = format == WeightFormat::kFp4 ? WeightFormat::kFp8 : format;
      const Layer layer = random_layer(rng, format, shared, c.experts, c.dim, c.inner);
      const std::vector<std::int32_t> chosen = random_routes(rng, c);
      std::vector<float> weight = random_values(rng, c.rows * c.top_k, 0.3f);
      const std::vector<float> x = random_values(rng, c.rows * c.dim, 2.0f);
      ExpertsOp op{x.data(),
                   layer.experts,
                   c.shared ? &layer.shared : nullptr,
                   chosen.data(),
                   weight.data(),
                   c.rows,
                   c.top_k,
                   c.dim,
                   c.inner,
                   10.0f,
                   c.quantize_block,
                   nullptr,
                   c.round};
      std::vector<float> expected(zu(c.rows * c.dim));
      op.out = expected.data();
      ref::experts({&two}, op);
      for (ThreadPool* pool : {&one, &two, &three}) {
        std::vector<float> out(expected.size(), -1.0f);
        op.out = out.data();
        cpu::experts({pool}, op);
        ASSERT_EQ(first_difference(expected, out), -1)
            << "experts " << c.experts << " rows " << c.rows << " format " << static_cast<int>(format);
      }
      // Each row alone has the same bits.
      for (std::int64_t t = 0; t < c.rows; t += 7) {
        std::vector<float> out(zu(c.dim));
        ExpertsOp single = op;
        single.x += t * c.dim;
        single.chosen += t * c.top_k;
        single.weight += t * c.top_k;
        single.rows = 1;
        single.out = out.data();
        cpu::experts({&two}, single);
        ASSERT_EQ(first_difference(std::span(expected).subspan(zu(t * c.dim), zu(c.dim)), out), -1)
            << "row " << t;
      }
    }
  }
}

TEST_P(CpuExperts, CloseToDoublePrecision) {
  std::mt19937 rng = seeded(600);
  ThreadPool pool(2);
  const Case c{8, 2, 128, 96, 5, 0, true, Round::kNone};
  const Layer layer = random_layer(rng, WeightFormat::kFp4, WeightFormat::kFp8, c.experts, c.dim, c.inner);
  const std::vector<std::int32_t> chosen = random_routes(rng, c);
  const std::vector<float> weight = random_values(rng, c.rows * c.top_k, 0.3f);
  const std::vector<float> x = random_values(rng, c.rows * c.dim, 0.05f);
  std::vector<float> out(zu(c.rows * c.dim));
  cpu::experts({&pool}, {x.data(), layer.experts, &layer.shared, chosen.data(), weight.data(), c.rows,
                         c.top_k, c.dim, c.inner, 10.0f, 0, out.data(), Round::kNone});
  for (std::int64_t t = 0; t < c.rows; ++t) {
    std::vector<double> exact(zu(c.dim)), magnitude(zu(c.dim));
    const auto add = [&](const ExpertWeights& e, double route) {
      std::vector<double> a(zu(c.inner));
      for (std::int64_t i = 0; i < c.inner; ++i) {
        double g = 0, p = 0;
        for (std::int64_t k = 0; k < c.dim; ++k) {
          g += static_cast<double>(x[zu(t * c.dim + k)]) * test::weight_value(e.w1, i, k);
          p += static_cast<double>(x[zu(t * c.dim + k)]) * test::weight_value(e.w3, i, k);
        }
        g = std::min(g, 10.0);
        a[zu(i)] = g / (1 + std::exp(-g)) * std::clamp(p, -10.0, 10.0) * route;
      }
      for (std::int64_t n = 0; n < c.dim; ++n) {
        for (std::int64_t i = 0; i < c.inner; ++i) {
          const double product = a[zu(i)] * test::weight_value(e.w2, n, i);
          exact[zu(n)] += product;
          magnitude[zu(n)] += std::abs(product);
        }
      }
    };
    for (std::int64_t k = 0; k < c.top_k; ++k) {
      add(layer.experts[zu(chosen[zu(t * c.top_k + k)])], weight[zu(t * c.top_k + k)]);
    }
    add(layer.shared, 1.0);
    for (std::int64_t n = 0; n < c.dim; ++n) {
      ASSERT_NEAR(out[zu(t * c.dim + n)], exact[zu(n)], 2e-5 * magnitude[zu(n)])
          << "row " << t << " channel " << n;
    }
  }
}

DI_EVERY_ISA(CpuExperts);

}  // namespace
}  // namespace deepinfer
