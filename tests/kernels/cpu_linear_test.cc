// The packed linear operators against the reference, bit for bit, and against double precision.
#include "cpu_test.h"
#include "kernels/cpu/cpu.h"
#include "kernels/ref/ref.h"

namespace deepinfer {
namespace {

using test::first_difference;
using test::random_values;
using test::random_weight;
using test::zu;

constexpr WeightFormat kFormats[] = {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kFp8,
                                     WeightFormat::kFp4};

class CpuLinear : public test::CpuKernelTest {};

struct Shape {
  std::int64_t rows, n, k;
};

TEST_P(CpuLinear, EqualsReferenceForAllFormatsAndShapes) {
  const Shape shapes[] = {{1, 1, 32},    {1, 16, 64},   {1, 17, 32},   {2, 80, 96},   {3, 33, 288},
                          {4, 48, 256},  {5, 100, 128}, {7, 31, 320},  {8, 64, 512},  {9, 40, 96},
                          {12, 32, 32},  {13, 65, 160}, {17, 16, 256}, {24, 96, 544}, {40, 50, 288},
                          {193, 48, 64}, {400, 24, 32}};
  ThreadPool one(1), two(2), three(3);
  std::uint32_t seed = 100;
  for (const WeightFormat format : kFormats) {
    for (Shape shape : shapes) {
      std::mt19937 rng = seeded(++seed);
      const bool odd_k = format != WeightFormat::kFp4 && seed % 3 == 0;
      if (odd_k) shape.k -= 1 + static_cast<std::int64_t>(rng() % 31);  // a short last block
      const auto w = random_weight(rng, format, shape.n, shape.k, seed % 4 == 1);
      const std::int64_t x_stride = shape.k + 5, y_stride = shape.n + 3;
      const std::vector<float> x = random_values(rng, shape.rows * x_stride);
      const Round round = seed % 2 == 0 ? Round::kNone : Round::kBf16;
      std::vector<float> expected(zu(shape.rows * y_stride), 7.0f);
      ref::linear({&two}, {x.data(), x_stride, w.view, expected.data(), y_stride, shape.rows, round});
      for (ThreadPool* pool : {&one, &two, &three}) {
        std::vector<float> y(expected.size(), 7.0f);
        cpu::linear({pool}, {x.data(), x_stride, w.view, y.data(), y_stride, shape.rows, round});
        ASSERT_EQ(first_difference(expected, y), -1)
            << "format " << static_cast<int>(format) << " rows " << shape.rows << " n " << shape.n << " k "
            << shape.k << " threads " << pool->thread_count();
      }
    }
  }
}

TEST_P(CpuLinear, RowBitsDoNotDependOnTheBatch) {
  std::mt19937 rng = seeded(7);
  ThreadPool pool(2);
  constexpr std::int64_t kRows = 40, kN = 72, kK = 320;
  for (const WeightFormat format : kFormats) {
    const auto w = random_weight(rng, format, kN, kK);
    const std::vector<float> x = random_values(rng, kRows * kK);
    std::vector<float> alone(zu(kRows * kN));
    for (std::int64_t r = 0; r < kRows; ++r) {
      cpu::linear({&pool}, {x.data() + r * kK, kK, w.view, alone.data() + r * kN, kN, 1, Round::kNone});
    }
    for (std::int64_t rows = 1; rows <= kRows; ++rows) {
      std::vector<float> y(zu(rows * kN));
      cpu::linear({&pool}, {x.data(), kK, w.view, y.data(), kN, rows, Round::kNone});
      ASSERT_EQ(first_difference(std::span(alone).first(y.size()), y), -1) << rows << " rows";
    }
  }
}

TEST_P(CpuLinear, ScaleExtremesAndSubnormalCodes) {
  // ue8m0 byte 0 is a subnormal multiplier; the smallest codes of both formats are subnormal.
  ThreadPool pool(2);
  for (const WeightFormat format : {WeightFormat::kFp8, WeightFormat::kFp4}) {
    std::mt19937 rng = seeded(11);
    auto w = random_weight(rng, format, 48, 128);
    for (std::uint8_t& code : w.data)
      code = static_cast<std::uint8_t>(rng() % 256) & (format == WeightFormat::kFp8 ? 0x87 : 0x99);
    for (std::size_t i = 0; i < w.scale.size(); ++i)
      w.scale[i] = static_cast<std::uint8_t>(i % 3 == 0 ? 0 : i % 3 == 1 ? 254 : 120);
    w.view = cpu::pack_weight(w.view, w.packed.bytes(), &pool);
    const std::vector<float> x = random_values(rng, 9 * 128, 1e-3f);
    for (const std::int64_t rows : {1, 9}) {
      std::vector<float> expected(zu(rows * 48)), y(expected.size());
      ref::linear({&pool}, {x.data(), 128, w.view, expected.data(), 48, rows, Round::kNone});
      cpu::linear({&pool}, {x.data(), 128, w.view, y.data(), 48, rows, Round::kNone});
      ASSERT_EQ(first_difference(expected, y), -1);
    }
  }
}

TEST_P(CpuLinear, BrokenWeightsAndActivationsShow) {
  std::mt19937 rng = seeded(12);
  ThreadPool pool(1);
  auto w = random_weight(rng, WeightFormat::kFp8, 32, 64);
  w.data[3 * 64 + 40] = 0xff;
  w.view = cpu::pack_weight(w.view, w.packed.bytes(), &pool);
  std::vector<float> x = random_values(rng, 2 * 64);
  std::vector<float> y(2 * 32);
  cpu::linear({&pool}, {x.data(), 64, w.view, y.data(), 32, 2, Round::kNone});
  EXPECT_TRUE(std::isnan(y[3]));
  EXPECT_FALSE(std::isnan(y[16]));
  x[70] = std::numeric_limits<float>::quiet_NaN();
  cpu::linear({&pool}, {x.data(), 64, w.view, y.data(), 32, 2, Round::kBf16});
  EXPECT_FALSE(std::isnan(y[20]));
  EXPECT_TRUE(std::isnan(y[32 + 20]));
}

TEST_P(CpuLinear, CloseToDoublePrecision) {
  std::mt19937 rng = seeded(13);
  ThreadPool pool(2);
  constexpr std::int64_t kN = 40, kK = 1024;
  for (const WeightFormat format : kFormats) {
    const auto w = random_weight(rng, format, kN, kK);
    for (const std::int64_t rows : {1, 14}) {
      const std::vector<float> x = random_values(rng, rows * kK);
      std::vector<float> y(zu(rows * kN));
      cpu::linear({&pool}, {x.data(), kK, w.view, y.data(), kN, rows, Round::kNone});
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t n = 0; n < kN; ++n) {
          double exact = 0, magnitude = 0;
          for (std::int64_t k = 0; k < kK; ++k) {
            const double product = static_cast<double>(x[zu(r * kK + k)]) * test::weight_value(w.view, n, k);
            exact += product;
            magnitude += std::abs(product);
          }
          // At most 32 + 32 roundings of partial sums lie on the way of any product.
          ASSERT_NEAR(y[zu(r * kN + n)], exact, 64 * 0x1p-24 * magnitude) << "row " << r << " output " << n;
        }
      }
    }
  }
}

TEST_P(CpuLinear, GroupedEqualsReference) {
  struct Case {
    std::int64_t rows, groups, n, k;
  };
  const Case cases[] = {{1, 2, 64, 128},  {3, 4, 24, 96},  {8, 2, 20, 64},
                        {13, 2, 64, 128}, {30, 3, 40, 32}, {5, 8, 8, 64}};
  ThreadPool one(1), two(2);
  std::uint32_t seed = 300;
  for (const WeightFormat format : kFormats) {
    for (const Case& c : cases) {
      std::mt19937 rng = seeded(++seed);
      const auto w = random_weight(rng, format, c.groups * c.n, c.k);
      const std::vector<float> x = random_values(rng, c.rows * c.groups * c.k);
      std::vector<float> expected(zu(c.rows * c.groups * c.n));
      const Round round = seed % 2 == 0 ? Round::kNone : Round::kBf16;
      ref::grouped_linear({&two}, {x.data(), w.view, c.groups, expected.data(), c.rows, round});
      for (ThreadPool* pool : {&one, &two}) {
        std::vector<float> y(expected.size());
        cpu::grouped_linear({pool}, {x.data(), w.view, c.groups, y.data(), c.rows, round});
        ASSERT_EQ(first_difference(expected, y), -1)
            << "format " << static_cast<int>(format) << " rows " << c.rows;
      }
    }
  }
}

TEST(PackedSize, IsTheStoredSizeAndACacheLine) {
  Weight w{.format = WeightFormat::kFp4, .n = 1024, .k = 2048};
  EXPECT_EQ(cpu::packed_size_bytes(w), 1024u * 2048 / 2 + 1024 * 2048 / 32 + cpu::kAlignment);
  w.format = WeightFormat::kFp8;
  EXPECT_LE(cpu::packed_size_bytes(w), 1024u * 2048 + 1024 * 2048 / 512 + cpu::kAlignment);
  w.format = WeightFormat::kBf16;
  EXPECT_EQ(cpu::packed_size_bytes(w), 1024u * 2048 * 2 + cpu::kAlignment);
}

DI_EVERY_ISA(CpuLinear);

}  // namespace
}  // namespace deepinfer
