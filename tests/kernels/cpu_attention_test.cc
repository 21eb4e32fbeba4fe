// Attention and index selection against the reference, bit for bit.
#include "cpu_test.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/top_k.h"
#include "kernels/ref/ref.h"
#include "step_fixture.h"

namespace deepinfer {
namespace {

using test::first_difference;
using test::random_values;
using test::zu;

class CpuAttention : public test::CpuKernelTest {};

struct Formats {
  RecordKind window, pool;
};

// Ascending random entries below `visible`, at most top_k.
void random_selection(std::mt19937& rng, std::int64_t visible, std::int64_t top_k, std::int32_t* out,
                      std::int32_t* count) {
  std::vector<std::int32_t> all(zu(visible));
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), rng);
  all.resize(zu(std::min(visible, top_k)));
  std::sort(all.begin(), all.end());
  std::copy(all.begin(), all.end(), out);
  *count = static_cast<std::int32_t>(all.size());
}

// Attention over random caches. mode: 0 window only, 1 selected entries, 2 every visible entry.
struct AttentionCase {
  std::int64_t heads, dim, rope, window, ratio, top_k;
  int mode;
  Formats formats;
  Round round;
  std::vector<test::SequenceShape> sequences;
};

const std::vector<AttentionCase>& attention_cases() {
  static const std::vector<AttentionCase> cases = {
      {4,
       64,
       16,
       128,
       1,
       64,
       0,
       {RecordKind::kFp8Block32, RecordKind::kFp4Block16},
       Round::kBf16,
       {{0, 1}, {0, 140}, {500, 3}}},
      {4,
       64,
       16,
       128,
       2,
       64,
       1,
       {RecordKind::kFp8Block32, RecordKind::kFp4Block16},
       Round::kBf16,
       {{700, 1}, {90, 60}, {0, 5}}},
      {6,
       64,
       16,
       16,
       4,
       7,
       1,
       {RecordKind::kFp8Split64, RecordKind::kFp8Split64},
       Round::kBf16,
       {{10, 9}, {1000, 2}}},
      {5,
       48,
       16,
       20,
       128,
       0,
       2,
       {RecordKind::kF32, RecordKind::kFp8Split64F32},
       Round::kNone,
       {{600, 40}, {127, 3}, {3, 1}}},
      {64,
       512,
       64,
       128,
       1,
       100,
       1,
       {RecordKind::kFp8Block32, RecordKind::kFp4Block16},
       Round::kBf16,
       {{300, 2}}},
      {3,
       16,
       0,
       4,
       1,
       9,
       1,
       {RecordKind::kF32, RecordKind::kF32},
       Round::kNone,
       {{0, 17}, {5, 1}, {6, 1}, {7, 1}}},
      {2, 32, 8, 8, 2, 3, 2, {RecordKind::kFp4Block32, RecordKind::kFp4Block32}, Round::kNone, {{31, 33}}},
      {2,
       20,
       4,
       8,
       2,
       3,
       1,
       {RecordKind::kF32, RecordKind::kF32},
       Round::kNone,
       {{31, 3}}},  // a width the reference takes
  };
  return cases;
}

TEST_P(CpuAttention, EqualsReferenceForEveryThreadCount) {
  ThreadPool one(1), two(2), three(3);
  std::uint32_t seed = 700;
  for (const AttentionCase& c : attention_cases()) {
    std::mt19937 rng = seeded(++seed);
    test::StepFixture f(rng, c.sequences);
    const RecordFormat window = make_record_format(c.formats.window, c.dim, c.rope);
    const RecordFormat pool = make_record_format(c.formats.pool, c.dim, c.rope);
    test::OwnedWindow ring(rng, window, static_cast<std::int64_t>(c.sequences.size()), c.window + 3);
    test::OwnedPool history(rng, pool, f.block_count(), c.ratio);
    const std::vector<float> q = random_values(rng, f.step.rows * c.heads * c.dim);
    const std::vector<float> fresh = random_values(rng, f.step.rows * c.dim);
    const std::vector<float> sink = random_values(rng, c.heads);
    std::vector<std::int32_t> selected(zu(f.step.rows * std::max<std::int64_t>(c.top_k, 1))),
        count(zu(f.step.rows));
    for (std::int64_t t = 0; t < f.step.rows && c.mode == 1; ++t) {
      random_selection(rng, (f.step.position[zu(t)] + 1) / c.ratio, c.top_k, selected.data() + t * c.top_k,
                       count.data() + t);
    }
    std::vector<float> expected(q.size());
    AttentionOp op{q.data(),
                   expected.data(),
                   c.heads,
                   c.dim,
                   1.0f / std::sqrt(static_cast<float>(c.dim)),
                   sink.data(),
                   &f.step,
                   c.window,
                   fresh.data(),
                   ring.window,
                   c.mode == 0 ? PoolCache{} : history.pool,
                   c.mode == 1 ? selected.data() : nullptr,
                   count.data(),
                   c.top_k,
                   c.round};
    ref::attention({&two}, op);
    for (ThreadPool* pool_threads : {&one, &two, &three}) {
      std::vector<float> o(q.size(), -3.0f);
      op.o = o.data();
      cpu::attention({pool_threads}, op);
      ASSERT_EQ(first_difference(expected, o), -1) << "case " << &c - attention_cases().data();
    }
  }
}

TEST_P(CpuAttention, CloseToDoublePrecision) {
  std::mt19937 rng = seeded(750);
  ThreadPool pool(2);
  constexpr std::int64_t kHeads = 4, kDim = 64, kWindow = 24, kRows = 50;
  test::StepFixture f(rng, {{0, kRows}});
  const RecordFormat format = make_record_format(RecordKind::kF32, kDim);
  test::OwnedWindow ring(rng, format, 1, kWindow);
  const std::vector<float> q = random_values(rng, kRows * kHeads * kDim),
                           keys = random_values(rng, kRows * kDim);
  const std::vector<float> sink = random_values(rng, kHeads);
  std::vector<float> o(q.size());
  const float scale = 0.125f;
  cpu::attention({&pool}, {q.data(), o.data(), kHeads, kDim, scale, sink.data(), &f.step, kWindow,
                           keys.data(), ring.window, PoolCache{}, nullptr, nullptr, 0, Round::kNone});
  for (std::int64_t t = 0; t < kRows; ++t) {
    for (std::int64_t h = 0; h < kHeads; ++h) {
      std::vector<double> sum(kDim);
      double total = std::exp(static_cast<double>(sink[zu(h)]));
      for (std::int64_t j = std::max<std::int64_t>(0, t - kWindow + 1); j <= t; ++j) {
        double logit = 0;
        for (std::int64_t i = 0; i < kDim; ++i) {
          logit += static_cast<double>(q[zu((t * kHeads + h) * kDim + i)]) *
                   static_cast<double>(keys[zu(j * kDim + i)]);
        }
        const double w = std::exp(logit * static_cast<double>(scale));
        total += w;
        for (std::int64_t i = 0; i < kDim; ++i) sum[zu(i)] += w * static_cast<double>(keys[zu(j * kDim + i)]);
      }
      for (std::int64_t i = 0; i < kDim; ++i) {
        const double exact = sum[zu(i)] / total;
        ASSERT_NEAR(o[zu((t * kHeads + h) * kDim + i)], exact, 1e-4 * (1 + std::abs(exact)));
      }
    }
  }
}

struct IndexCase {
  std::int64_t heads, dim, ratio, top_k, block, blocks;
  bool out, in;
  RecordKind kind;
  std::vector<test::SequenceShape> sequences;
};

TEST_P(CpuAttention, IndexSelectionEqualsReference) {
  const IndexCase cases[] = {
      {4, 32, 1, 64, 8, 32, false, false, RecordKind::kFp4Block32, {{0, 200}, {700, 1}, {40, 20}}},
      {4, 32, 1, 64, 8, 32, true, false, RecordKind::kFp4Block32, {{0, 300}, {1500, 2}, {263, 1}}},
      {4, 32, 1, 64, 8, 32, false, true, RecordKind::kFp4Block32, {{0, 270}, {1500, 2}}},
      {64, 128, 2, 100, 16, 4, false, false, RecordKind::kFp4Block32, {{2500, 2}, {0, 1}}},
      {3, 16, 4, 2, 2, 3, true, true, RecordKind::kF32, {{100, 5}, {0, 9}}},
      {1, 48, 4, 1, 2, 3, true, false, RecordKind::kF32, {{3000, 40}}},
  };
  ThreadPool one(1), two(2), three(3);
  std::uint32_t seed = 800;
  for (const IndexCase& c : cases) {
    std::mt19937 rng = seeded(++seed);
    test::StepFixture f(rng, c.sequences);
    test::OwnedPool keys(rng, make_record_format(c.kind, c.dim), f.block_count(), c.ratio);
    std::vector<float> q = random_values(rng, f.step.rows * c.heads * c.dim);
    std::vector<float> weight = random_values(rng, f.step.rows * c.heads);
    // Every third row has equal scores everywhere (zero weights): ties decide.
    for (std::int64_t t = 0; t < f.step.rows; t += 3)
      std::fill_n(weight.begin() + t * c.heads, c.heads, 0.0f);
    std::vector<std::int32_t> in(zu(f.step.rows * c.blocks)), in_count(zu(f.step.rows), -1);
    for (std::int64_t t = 0; t < f.step.rows && c.in; ++t) {
      const std::int64_t blocks = ((f.step.position[zu(t)] + 1) / c.ratio + c.block - 1) / c.block;
      if (blocks > c.blocks)
        random_selection(rng, blocks, c.blocks, in.data() + t * c.blocks, in_count.data() + t);
    }
    struct Output {
      std::vector<std::int32_t> selected, count, blocks, block_count;
      bool operator==(const Output&) const = default;
    };
    const auto run = [&](auto function, ThreadPool& pool) {
      Output o;
      o.selected.assign(zu(f.step.rows * c.top_k), -1);
      o.count.assign(zu(f.step.rows), -1);
      o.blocks.assign(zu(f.step.rows * c.blocks), -1);
      o.block_count.assign(zu(f.step.rows), -2);
      function({&pool},
               {q.data(), weight.data(), c.heads, c.dim, &f.step, keys.pool, c.top_k, o.selected.data(),
                o.count.data(), c.block, c.blocks, c.out ? o.blocks.data() : nullptr, o.block_count.data(),
                c.in ? in.data() : nullptr, in_count.data()});
      return o;
    };
    const Output expected = run(ref::index_select, two);
    for (ThreadPool* pool : {&one, &two, &three}) {
      const Output o = run(cpu::index_select, *pool);
      EXPECT_EQ(o.count, expected.count);
      EXPECT_EQ(o.selected, expected.selected);
      EXPECT_EQ(o.block_count, expected.block_count);
      ASSERT_TRUE(o == expected) << "case " << &c - cases;
    }
  }
}

TEST(TopK, KeepsTheBestOfAnyStreamWithTiesToTheLowerIndex) {
  std::mt19937 rng(900);
  for (int round = 0; round < 200; ++round) {
    const std::int64_t count = 1 + static_cast<std::int64_t>(rng() % 300),
                       k = 1 + static_cast<std::int64_t>(rng() % 40);
    std::vector<float> score(zu(count));
    for (float& s : score)
      s = rng() % 10 == 0 ? -std::numeric_limits<float>::infinity() : static_cast<float>(rng() % 20);
    std::vector<std::int32_t> order(zu(count));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return score[zu(a)] > score[zu(b)]; });
    std::erase_if(order, [&](auto i) { return std::isinf(score[zu(i)]); });
    order.resize(std::min(order.size(), zu(k)));
    std::sort(order.begin(), order.end());
    std::vector<cpu::TopK::Entry> buffer(zu(cpu::TopK::buffer_size(k)));
    cpu::TopK top(buffer.data(), k);
    for (std::int64_t i = 0; i < count; ++i) top.offer(score[zu(i)], i);
    std::vector<std::int32_t> chosen(zu(k));
    chosen.resize(zu(top.finish(chosen.data())));
    ASSERT_EQ(chosen, order) << "round " << round;
  }
}

DI_EVERY_ISA(CpuAttention);

}  // namespace
}  // namespace deepinfer
