// The operators that treat rows on their own, the caches' writers, router and Engram: bit for bit against the
// reference.
#include "cpu_test.h"
#include "kernels/cpu/cpu.h"
#include "kernels/ref/ref.h"
#include "step_fixture.h"

namespace deepinfer {
namespace {

using test::first_difference;
using test::random_values;
using test::zu;

constexpr Round kRounds[] = {Round::kNone, Round::kBf16};
// One row, odd counts, and enough to be split over the threads.
constexpr std::int64_t kRowCounts[] = {1, 3, 37, 300};

class CpuRows : public test::CpuKernelTest {
 protected:
  // Runs `reference` once and `fast` with one, two and three threads on fresh copies of `data`; all must
  // leave the same.
  template <class Op>
  void same(const std::vector<float>& data, void (*reference)(const Exec&, const Op&),
            void (*fast)(const Exec&, const Op&), const std::function<Op(std::vector<float>&)>& make,
            const std::string& what) {
    std::vector<float> expected = data;
    reference({&two_}, make(expected));
    for (ThreadPool* pool : {&one_, &two_, &three_}) {
      std::vector<float> y = data;
      fast({pool}, make(y));
      ASSERT_EQ(first_difference(expected, y), -1) << what << " threads " << pool->thread_count();
    }
  }

  ThreadPool one_{1}, two_{2}, three_{3};
};

TEST_P(CpuRows, Embed) {
  std::mt19937 rng = seeded(1);
  constexpr std::int64_t kVocab = 50;
  for (const std::int64_t dim : {20, 256}) {
    std::vector<std::uint16_t> table(zu(kVocab * dim));
    for (auto& v : table) v = static_cast<std::uint16_t>(rng() & 0x7eff);
    for (const std::int64_t rows : kRowCounts) {
      std::vector<std::int32_t> ids(zu(rows));
      for (auto& id : ids) id = static_cast<std::int32_t>(rng() % kVocab);
      same<EmbedOp>(
          std::vector<float>(zu(rows * 4 * dim)), ref::embed, cpu::embed,
          [&](std::vector<float>& x) { return EmbedOp{ids.data(), table.data(), x.data(), rows, 4, dim}; },
          "embed");
    }
  }
}

TEST_P(CpuRows, RmsNorm) {
  std::mt19937 rng = seeded(2);
  for (const std::int64_t width : {16, 23, 96, 256, 1030}) {
    for (const std::int64_t rows : kRowCounts) {
      for (const Round round : kRounds) {
        const std::int64_t groups = rows % 2 == 0 ? 1 : 3, stride = groups * width + 7;
        const std::vector<float> weight = random_values(rng, width);
        const bool weighted = rng() % 4 != 0, tiny = rng() % 3 == 0;
        same<RmsNormOp>(
            random_values(rng, rows * stride, tiny ? 1e-12f : 1.0f), ref::rms_norm, cpu::rms_norm,
            [&](std::vector<float>& x) {
              return RmsNormOp{x.data(),
                               x.data(),
                               stride,
                               rows,
                               groups,
                               width,
                               weighted ? weight.data() : nullptr,
                               tiny ? 1e-20f : 1e-6f,
                               round};
            },
            "rms_norm width " + std::to_string(width));
      }
    }
  }
}

TEST_P(CpuRows, Rope) {
  std::mt19937 rng = seeded(3);
  for (const std::int64_t half : {2, 8, 9, 32}) {
    for (const std::int64_t rows : kRowCounts) {
      for (const bool inverse : {false, true}) {
        const std::int64_t heads = 1 + static_cast<std::int64_t>(rng() % 5),
                           dim = 2 * half + static_cast<std::int64_t>(rng() % 3) * 16;
        std::vector<float> rotation(zu(rows * half * 2));
        for (std::size_t i = 0; i < rotation.size(); i += 2) {
          const double angle = std::uniform_real_distribution<double>(0, 6.28)(rng);
          rotation[i] = static_cast<float>(std::cos(angle));
          rotation[i + 1] = static_cast<float>(std::sin(angle));
        }
        same<RopeOp>(
            random_values(rng, rows * heads * dim), ref::rope, cpu::rope,
            [&](std::vector<float>& x) {
              return RopeOp{x.data(),        rows, heads,   dim,
                            rotation.data(), half, inverse, inverse ? Round::kNone : Round::kBf16};
            },
            "rope half " + std::to_string(half));
      }
    }
  }
}

// Ordinary values, values over the whole range, zeros, and in some rows infinities and NaNs.
std::vector<float> hard_values(std::mt19937& rng, std::int64_t rows, std::int64_t width) {
  std::vector<float> x = random_values(rng, rows * width);
  for (std::int64_t t = 0; t < rows; ++t) {
    const auto kind = rng() % 6;
    for (std::int64_t i = 0; i < width; ++i) {
      float& v = x[zu(t * width + i)];
      if (kind == 1) v = std::bit_cast<float>(static_cast<std::uint32_t>(rng()) & 0xbfffffffu);
      if (kind == 2) v = rng() % 2 == 0 ? 0.0f : -0.0f;
      if (kind == 3) v *= 1e-6f;
      if (kind == 4 && rng() % 40 == 0) v = rng() % 2 == 0 ? INFINITY : NAN;
      if (kind == 5)
        v = std::ldexp(static_cast<float>(static_cast<int>(rng() % 33) - 16),
                       static_cast<int>(rng() % 9) - 6);
    }
  }
  return x;
}

TEST_P(CpuRows, QuantizeIncludingTiesAndBrokenValues) {
  std::mt19937 rng = seeded(4);
  for (const std::int64_t block : {32, 128}) {
    for (const std::int64_t width : {32, 96, 250, 1024}) {
      for (const std::int64_t rows : kRowCounts) {
        const std::vector<float> x = hard_values(rng, rows, width);
        same<QuantizeOp>(
            x, ref::quantize, cpu::quantize,
            [&](std::vector<float>& y) {
              return QuantizeOp{y.data(), y.data(), rows, width, block};
            },
            "in place");
        same<QuantizeOp>(
            std::vector<float>(x.size()), ref::quantize, cpu::quantize,
            [&](std::vector<float>& y) {
              return QuantizeOp{x.data(), y.data(), rows, width, block};
            },
            "apart");
      }
    }
  }
}

TEST_P(CpuRows, Hadamard) {
  std::mt19937 rng = seeded(5);
  for (const std::int64_t dim : {1, 8, 128}) {
    for (const std::int64_t rows : kRowCounts) {
      same<HadamardOp>(
          random_values(rng, rows * 3 * dim), ref::hadamard, cpu::hadamard,
          [&](std::vector<float>& x) {
            return HadamardOp{x.data(), rows, 3, dim, kRounds[rows % 2]};
          },
          "hadamard");
    }
  }
}

TEST_P(CpuRows, HyperConnections) {
  std::mt19937 rng = seeded(6);
  for (const std::int64_t dim : {24, 64, 256, 22}) {
    const std::vector<float> fn = random_values(rng, 24 * 4 * dim, 0.1f), scale = random_values(rng, 3),
                             base = random_values(rng, 24);
    for (const std::int64_t rows : kRowCounts) {
      const std::vector<float> x = random_values(rng, rows * 4 * dim);
      same<HyperMixOp>(
          std::vector<float>(zu(rows * 24)), ref::hyper_mix, cpu::hyper_mix,
          [&](std::vector<float>& y) {
            return HyperMixOp{x.data(),
                              fn.data(),
                              scale.data(),
                              base.data(),
                              y.data(),
                              y.data() + rows * 4,
                              y.data() + rows * 8,
                              rows,
                              dim,
                              1e-20f,
                              1e-6f,
                              20};
          },
          "mix");
      same<HyperHeadOp>(
          std::vector<float>(zu(rows * 4)), ref::hyper_head, cpu::hyper_head,
          [&](std::vector<float>& y) {
            return HyperHeadOp{x.data(), fn.data(), scale.data(), base.data(), y.data(),
                               rows,     dim,       1e-6f,        1e-6f};
          },
          "head");
      const std::vector<float> mix = random_values(rng, rows * 24), o = random_values(rng, rows * dim);
      for (const Round round : kRounds) {
        same<HyperCollapseOp>(
            std::vector<float>(zu(rows * dim)), ref::hyper_collapse, cpu::hyper_collapse,
            [&](std::vector<float>& u) {
              return HyperCollapseOp{x.data(), mix.data(), u.data(), rows, dim, round};
            },
            "collapse");
        same<HyperExpandOp>(
            x, ref::hyper_expand, cpu::hyper_expand,
            [&](std::vector<float>& y) {
              return HyperExpandOp{o.data(), mix.data(), mix.data() + rows * 4, y.data(), rows, dim, round};
            },
            "expand");
      }
    }
  }
}

constexpr RecordKind kKinds[] = {RecordKind::kF32,        RecordKind::kFp8Block32,
                                 RecordKind::kFp4Block16, RecordKind::kFp4Block32,
                                 RecordKind::kFp8Split64, RecordKind::kFp8Split64F32};

TEST_P(CpuRows, CacheRounding) {
  std::mt19937 rng = seeded(7);
  for (const RecordKind kind : kKinds) {
    for (const std::int64_t dim : {16, 64, 90, 512}) {
      for (const std::int64_t rows : kRowCounts) {
        const RecordFormat format = make_record_format(kind, dim, dim > 16 ? 16 : 0);
        same<CacheRoundOp>(
            hard_values(rng, rows, dim), ref::cache_round, cpu::cache_round,
            [&](std::vector<float>& x) {
              return CacheRoundOp{x.data(), rows, format};
            },
            "kind " + std::to_string(static_cast<int>(kind)) + " dim " + std::to_string(dim));
      }
    }
  }
}

TEST_P(CpuRows, WindowAndPoolWrites) {
  std::mt19937 rng = seeded(8);
  for (const RecordKind kind : kKinds) {
    test::StepFixture f(rng, {{0, 300}, {77, 1}, {1000, 40}});
    const RecordFormat format = make_record_format(kind, 64, 16);
    const std::vector<float> kv = random_values(rng, f.step.rows * 64);
    test::OwnedWindow a(rng, format, 3, 131);
    const std::vector<std::uint8_t> before = a.bytes;
    ref::window_write({&two_}, {kv.data(), &f.step, a.window});
    const std::vector<std::uint8_t> expected = a.bytes;
    for (ThreadPool* pool : {&one_, &three_}) {
      a.bytes = before;
      cpu::window_write({pool}, {kv.data(), &f.step, a.window});
      ASSERT_EQ(a.bytes, expected);
    }
    test::OwnedPool p(rng, format, f.block_count(), 2);
    const std::vector<std::uint8_t> pool_before = p.bytes;
    const PoolWriteOp op{kv.data(), f.step.position.data(), f.step.sequence.data(), f.step.rows, &f.step,
                         p.pool};
    // Two positions share an entry: only every second row is a finished group.
    std::vector<std::int64_t> position;
    std::vector<std::int32_t> sequence;
    for (std::size_t t = 0; t < f.step.position.size(); ++t) {
      if (f.step.position[t] % 2 == 0) {
        position.push_back(f.step.position[t]);
        sequence.push_back(f.step.sequence[t]);
      }
    }
    PoolWriteOp groups = op;
    groups.position = position.data();
    groups.sequence = sequence.data();
    groups.entries = static_cast<std::int64_t>(position.size());
    ref::pool_write({&two_}, groups);
    const std::vector<std::uint8_t> pool_expected = p.bytes;
    for (ThreadPool* pool : {&one_, &three_}) {
      p.bytes = pool_before;
      cpu::pool_write({pool}, groups);
      ASSERT_EQ(p.bytes, pool_expected);
    }
  }
}

TEST_P(CpuRows, Compress) {
  struct Case {
    std::int64_t ratio, dim;
    bool overlap, ape;
  };
  std::uint32_t seed = 20;
  for (const Case& c : {Case{1, 64, false, false}, Case{2, 64, false, false}, Case{4, 40, true, true},
                        Case{128, 23, false, true}}) {
    std::mt19937 rng = seeded(++seed);
    test::StepFixture f(rng, {{0, 9}, {3, 1}, {129, 300}, {6, 2}});
    const std::int64_t width = c.dim * (c.overlap ? 2 : 1), ring = 2 * c.ratio;
    std::int64_t entries = 0;
    for (const auto& seq : f.step.sequences)
      entries += (seq.start + seq.row_count) / c.ratio - seq.start / c.ratio;
    const std::vector<float> values = random_values(rng, f.step.rows * width),
                             gates = random_values(rng, f.step.rows * width);
    const std::vector<float> ape = random_values(rng, c.ratio * width);
    const std::int64_t tail_size = 4 * ring * 2 * width;
    // Outputs and the tail ring in one vector, so that both are compared.
    std::vector<float> data(zu(entries * c.dim));
    const std::vector<float> tail = random_values(rng, tail_size);
    data.insert(data.end(), tail.begin(), tail.end());
    std::vector<std::int64_t> position(zu(entries));
    std::vector<std::int32_t> sequence(zu(entries));
    same<CompressOp>(
        data, ref::compress, cpu::compress,
        [&](std::vector<float>& y) {
          return CompressOp{values.data(),
                            c.ratio == 1 ? nullptr : gates.data(),
                            c.ape ? ape.data() : nullptr,
                            c.ratio,
                            c.dim,
                            c.overlap,
                            &f.step,
                            c.ratio == 1 ? nullptr : y.data() + entries * c.dim,
                            ring * 2 * width,
                            ring,
                            y.data(),
                            position.data(),
                            sequence.data(),
                            entries,
                            kRounds[seed % 2]};
        },
        "ratio " + std::to_string(c.ratio));
    std::vector<std::int64_t> expected_position;
    for (const auto& seq : f.step.sequences) {
      for (std::int64_t g = seq.start / c.ratio; g < (seq.start + seq.row_count) / c.ratio; ++g)
        expected_position.push_back(g * c.ratio);
    }
    EXPECT_EQ(position, expected_position);
  }
}

TEST_P(CpuRows, Route) {
  std::mt19937 rng = seeded(9);
  constexpr std::int64_t kExperts = 24, kTopK = 4;
  for (const std::int64_t rows : kRowCounts) {
    std::vector<float> logits = random_values(rng, rows * kExperts);
    for (std::size_t i = 0; i < logits.size(); i += 5) logits[i] = 1.0f;  // ties
    const std::vector<float> bias(kExperts, 0.5f), bias_image = random_values(rng, kExperts);
    std::vector<std::uint8_t> image(zu(rows));
    for (auto& i : image) i = rng() % 2;
    std::vector<std::int64_t> fixed(10 * kTopK);
    for (std::size_t i = 0; i < fixed.size(); ++i) fixed[i] = static_cast<std::int64_t>(i * 7 % kExperts);
    std::vector<std::int32_t> ids(zu(rows));
    for (auto& id : ids) id = static_cast<std::int32_t>(rng() % 10);
    for (const bool hash : {false, true}) {
      std::vector<std::int32_t> chosen(zu(rows * kTopK)), expected(chosen.size());
      std::vector<float> weight(zu(rows * kTopK)), expected_weight(weight.size());
      RouteOp op{logits.data(),
                 bias.data(),
                 bias_image.data(),
                 image.data(),
                 hash ? fixed.data() : nullptr,
                 ids.data(),
                 rows,
                 kExperts,
                 kTopK,
                 1.5f,
                 2.0f,
                 1e-20f,
                 expected.data(),
                 expected_weight.data()};
      ref::route({&two_}, op);
      op.chosen = chosen.data();
      op.weight = weight.data();
      cpu::route({&three_}, op);
      EXPECT_EQ(chosen, expected);
      EXPECT_EQ(first_difference(expected_weight, weight), -1);
    }
  }
}

TEST_P(CpuRows, Engram) {
  std::mt19937 rng = seeded(10);
  constexpr std::int64_t kTable = 100, kCount = 6;
  for (const std::int64_t width : {32, 64}) {
    std::vector<std::uint8_t> table(zu(kTable * width)), scale(zu(kTable * width / 32));
    for (auto& v : table) v = static_cast<std::uint8_t>(rng());  // NaN codes too
    for (auto& s : scale) s = static_cast<std::uint8_t>(rng());
    for (const std::int64_t rows : kRowCounts) {
      std::vector<std::int64_t> ids(zu(rows * kCount));
      for (auto& id : ids) id = static_cast<std::int64_t>(rng() % kTable);
      same<EngramGatherOp>(
          std::vector<float>(zu(rows * kCount * width)), ref::engram_gather, cpu::engram_gather,
          [&](std::vector<float>& y) {
            return EngramGatherOp{ids.data(), kCount, table.data(), scale.data(), width, rows, y.data()};
          },
          "gather");
    }
  }
  for (const std::int64_t dim : {16, 256, 24}) {
    const std::vector<float> qk = random_values(rng, 4 * dim);
    for (const std::int64_t rows : kRowCounts) {
      const std::vector<float> kv = random_values(rng, rows * 5 * dim);
      std::vector<std::uint8_t> image(zu(rows));
      for (auto& i : image) i = rng() % 3 == 0;
      for (const Round round : kRounds) {
        same<EngramGateOp>(
            random_values(rng, rows * 4 * dim), ref::engram_gate, cpu::engram_gate,
            [&](std::vector<float>& x) {
              return EngramGateOp{
                  x.data(), kv.data(), qk.data(), round == Round::kNone ? nullptr : image.data(),
                  rows,     dim,       1e-20f,    round};
            },
            "gate");
      }
    }
  }
}

DI_EVERY_ISA(CpuRows);

}  // namespace
}  // namespace deepinfer
