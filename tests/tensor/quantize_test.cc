#include "tensor/quantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "tensor/float_formats.h"

namespace deepinfer {
namespace {

using Row = std::vector<float>;
using Bytes = std::vector<std::uint8_t>;

std::vector<std::uint32_t> bits_of(const Row& row) {
  std::vector<std::uint32_t> out;
  for (const float x : row) out.push_back(std::bit_cast<std::uint32_t>(x));
  return out;
}

/// Heavy-tailed values over the whole range activations have, with zeros, ties and outliers among them.
Row random_row(std::mt19937_64& rng, std::size_t n) {
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> pick(0, 99);
  const float level = std::ldexp(1.0f, std::uniform_int_distribution<int>(-30, 20)(rng));
  Row row(n);
  for (float& x : row) {
    const int p = pick(rng);
    x = normal(rng) * level;
    if (p < 5)
      x = 0;
    else if (p < 8)
      x = -0.0f;
    else if (p < 12)
      x *= 1000;
    else if (p < 20)
      x = round_to_bf16(x);
    else if (p < 40)
      x = static_cast<float>(pick(rng) - 50) * 0.25f * level;  // many exact ties
  }
  return row;
}

struct Format {
  const char* name;
  std::size_t block;
  bool packed;
  std::function<void(std::span<float>, std::size_t)> round_trip;
  std::function<void(std::span<const float>, std::size_t, std::span<std::uint8_t>, std::span<std::uint8_t>)>
      encode;
  std::function<void(std::span<const std::uint8_t>, std::span<const std::uint8_t>, std::size_t,
                     std::span<float>)>
      decode;
  std::function<double(double)> scale;  // the definition in double precision, from amax
  std::vector<double> grid;
};

std::vector<double> e4m3_grid() {
  std::vector<double> grid;
  for (int code = 0; code < 127; ++code)
    grid.push_back(static_cast<double>(e4m3_to_f32(static_cast<std::uint8_t>(code))));
  return grid;
}

double nearest(double x, const std::vector<double>& grid) {
  const double a = std::fmin(std::fabs(x), grid.back());
  std::size_t best = 0;
  for (std::size_t i = 1; i < grid.size(); ++i) {
    const double d = std::fabs(a - grid[i]) - std::fabs(a - grid[best]);
    if (d < 0 || (d == 0 && i % 2 == 0)) best = i;
  }
  return std::copysign(grid[best], x);
}

std::vector<Format> formats() {
  const std::vector<double> fp4 = {0, .5, 1, 1.5, 2, 3, 4, 6};
  const auto fp8_scale = [](double amax) {
    const float t = static_cast<float>(std::fmax(amax, static_cast<double>(1e-4f))) * (1.0f / 448.0f);
    return std::exp2(std::ceil(std::log2(static_cast<double>(t))));
  };
  const auto fp4_scale = [](double amax) {
    const float t = static_cast<float>(std::fmax(amax, std::ldexp(6.0, -126))) * (1.0f / 6.0f);
    return std::exp2(std::ceil(std::log2(static_cast<double>(t))));
  };
  const auto fp4_e4m3_scale = [](double amax) {
    const float t = static_cast<float>(std::fmax(amax, std::ldexp(6.0, -9))) / 6.0f;
    return nearest(static_cast<double>(t), e4m3_grid());
  };
  std::vector<Format> all;
  for (const std::size_t block : {32, 64, 128})
    all.push_back({"fp8", block, false, fp8_round_trip, fp8_encode, fp8_decode, fp8_scale, e4m3_grid()});
  all.push_back(
      {"fp4_ue8m0", 32, true, fp4_ue8m0_round_trip, fp4_ue8m0_encode, fp4_ue8m0_decode, fp4_scale, fp4});
  all.push_back(
      {"fp4_e4m3", 16, true, fp4_e4m3_round_trip, fp4_e4m3_encode, fp4_e4m3_decode, fp4_e4m3_scale, fp4});
  return all;
}

void encode_decode(const Format& f, const Row& row, Row& decoded, Bytes& scales) {
  Bytes codes(f.packed ? (row.size() + 1) / 2 : row.size());
  scales.assign(block_count(row.size(), f.block), 0);
  decoded.assign(row.size(), -1.0f);
  f.encode(row, f.block, codes, scales);
  f.decode(codes, scales, f.block, decoded);
}

TEST(BlockQuantizers, EncodeDecodeEqualsRoundTripBitForBitAndTheDoubleDefinition) {
  const std::uint64_t seed = 7;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 rng(seed);
  for (const Format& f : formats()) {
    for (int repeat = 0; repeat < 300; ++repeat) {
      const std::size_t n = 1 + rng() % 400;  // short last blocks and odd lengths too
      const Row row = random_row(rng, n);
      Row tripped = row;
      f.round_trip(tripped, f.block);
      Row decoded;
      Bytes scales;
      encode_decode(f, row, decoded, scales);
      ASSERT_EQ(bits_of(tripped), bits_of(decoded)) << f.name << " block " << f.block;
      for (std::size_t begin = 0; begin < n; begin += f.block) {
        const std::size_t end = std::min(n, begin + f.block);
        double amax = 0;
        for (std::size_t i = begin; i < end; ++i)
          amax = std::fmax(amax, std::fabs(static_cast<double>(row[i])));
        const double scale = f.scale(amax);
        for (std::size_t i = begin; i < end; ++i) {
          // The e4m3 scale is no power of two: the model divides in fp32, so the definition does too.
          const auto quotient = static_cast<double>(row[i] / static_cast<float>(scale));
          const double want = nearest(quotient, f.grid) * scale;
          ASSERT_EQ(static_cast<double>(tripped[i]), want) << f.name << " x=" << row[i] << " scale=" << scale;
          ASSERT_EQ(std::signbit(tripped[i]), std::signbit(row[i]));
        }
      }
    }
  }
}

TEST(BlockQuantizers, RoundedValuesAreAFixedPoint) {
  std::mt19937_64 rng(11);
  for (const Format& f : formats()) {
    if (f.name == std::string("fp4_e4m3")) continue;  // its scale may change once amax has been rounded
    for (int repeat = 0; repeat < 50; ++repeat) {
      Row once = random_row(rng, 256);
      f.round_trip(once, f.block);
      Row twice = once;
      f.round_trip(twice, f.block);
      EXPECT_EQ(bits_of(once), bits_of(twice)) << f.name;
    }
  }
}

TEST(BlockQuantizers, BrokenValuesPoisonTheirBlockOnly) {
  for (const Format& f : formats()) {
    for (const float bad : {std::nanf(""), -std::nanf(""), INFINITY, -INFINITY}) {
      Row row(2 * f.block, 1.0f);
      row[f.block / 2] = bad;
      Row decoded;
      Bytes scales;
      encode_decode(f, row, decoded, scales);
      f.round_trip(row, f.block);
      for (std::size_t i = 0; i < row.size(); ++i) {
        EXPECT_EQ(std::isnan(row[i]), i < f.block) << f.name << " " << bad;
        EXPECT_EQ(std::isnan(decoded[i]), i < f.block) << f.name << " " << bad;
      }
    }
  }
}

TEST(BlockQuantizers, ExtremesStayFinite) {
  for (const Format& f : formats()) {
    for (const float x : {1e38f, 1e-45f, 1.1754944e-38f, 1e-4f, 6 * 0x1p-9f, 6 * 0x1p-126f}) {
      Row row(f.block, x);
      row[1] = -x;
      row[2] = 0;
      f.round_trip(row, f.block);
      for (const float y : row) EXPECT_TRUE(std::isfinite(y)) << f.name << " " << x;
    }
  }
}

TEST(BlockQuantizers, ScalesAtTheBorders) {
  Bytes codes(32), scale(1);
  Row row(32, 0.0f);
  fp8_encode(row, 32, codes, scale);
  EXPECT_EQ(scale[0], 127 - 22);  // floor 1e-4: 2^ceil(log2(1e-4 / 448)) = 2^-22
  row[3] = 448.0f;
  fp8_encode(row, 32, codes, scale);
  EXPECT_EQ(scale[0], 127);
  EXPECT_EQ(codes[3], 0x7e);
  row[3] = 449.0f;
  fp8_encode(row, 32, codes, scale);
  EXPECT_EQ(scale[0], 128);

  Bytes packed(16);
  row.assign(32, 0.0f);
  fp4_ue8m0_encode(row, 32, packed, scale);
  EXPECT_EQ(scale[0], 1);  // floor 6 * 2^-126
  row[0] = -6.0f;
  row[1] = 0.5f;
  fp4_ue8m0_encode(row, 32, packed, scale);
  EXPECT_EQ(scale[0], 127);
  EXPECT_EQ(packed[0], 0x1f);  // even column low: -6 is 15, then 0.5 is 1

  Bytes two(2), eight(16);
  fp4_e4m3_encode(Row(32, 0.0f), 16, eight, two);
  EXPECT_EQ(two[0], 1);  // floor 6 * 2^-9: the smallest e4m3
  Row up(16, 0.0f);
  up[0] = 6.36f;  // 6.36 / 6 = 1.06 rounds down to 1: the quotient passes 6 and saturates
  fp4_e4m3_round_trip(up, 16);
  EXPECT_EQ(up[0], 6.0f);
}

TEST(WeightQuantizers, ScaleIsTheSmallestPowerOfTwoThatFits) {
  std::mt19937_64 rng(3);
  for (const TileShape tile : {TileShape{32, 32}, TileShape{128, 128}, TileShape{1, 32}}) {
    const std::int64_t rows = 160, cols = 96 + 40;  // partial tiles at both ends
    const Row weight = random_row(rng, static_cast<std::size_t>(rows * cols));
    const std::int64_t tr = (rows + tile.rows - 1) / tile.rows, tc = (cols + tile.cols - 1) / tile.cols;
    Bytes codes(weight.size()), scales(static_cast<std::size_t>(tr * tc));
    fp8_quantize_weight(weight, rows, cols, tile, codes, scales);
    Row back(weight.size());
    fp8_dequantize_weight(codes, scales, rows, cols, tile, back);
    Row amax(scales.size());
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        const auto i = static_cast<std::size_t>(r * cols + c);
        const auto s = static_cast<std::size_t>(r / tile.rows * tc + c / tile.cols);
        amax[s] = std::max(amax[s], std::fabs(weight[i]));
        const double scale = std::ldexp(1.0, scales[s] - 127);
        ASSERT_EQ(static_cast<double>(back[i]),
                  nearest(static_cast<double>(weight[i]) / scale, e4m3_grid()) * scale);
      }
    }
    for (std::size_t s = 0; s < scales.size(); ++s) {
      const double ratio =
          std::fmax(static_cast<double>(amax[s]), 1e-12) / 448.0 / std::ldexp(1.0, scales[s] - 127);
      EXPECT_LE(ratio, 1.0);
      EXPECT_GT(ratio, 0.4999);
    }
  }
}

TEST(WeightQuantizers, QuantisingQuantisedWeightsLosesNothing) {
  std::mt19937_64 rng(5);
  const std::int64_t rows = 96, cols = 160;
  const auto n = static_cast<std::size_t>(rows * cols);
  const Row weight = random_row(rng, n);
  Bytes codes(n), scales(3 * 5), packed(n / 2), fp4_scales(n / 32);
  Row once(n), twice(n);
  fp8_quantize_weight(weight, rows, cols, {32, 32}, codes, scales);
  fp8_dequantize_weight(codes, scales, rows, cols, {32, 32}, once);
  fp8_quantize_weight(once, rows, cols, {32, 32}, codes, scales);
  fp8_dequantize_weight(codes, scales, rows, cols, {32, 32}, twice);
  EXPECT_EQ(bits_of(once), bits_of(twice));
  fp4_quantize_weight(weight, rows, cols, packed, fp4_scales);
  fp4_dequantize_weight(packed, fp4_scales, rows, cols, once);
  EXPECT_NE(bits_of(weight), bits_of(once));
  fp4_quantize_weight(once, rows, cols, packed, fp4_scales);
  fp4_dequantize_weight(packed, fp4_scales, rows, cols, twice);
  EXPECT_EQ(bits_of(once), bits_of(twice));
}

TEST(WeightQuantizers, ZeroAndBrokenTiles) {
  Row weight(64, 0.0f);
  Bytes codes(64), scales(2);
  fp8_quantize_weight(weight, 1, 64, {1, 32}, codes, scales);
  EXPECT_EQ(scales[0], 127 - 48);  // 1e-12 / 448 lies between 2^-49 and 2^-48
  weight[40] = INFINITY;
  fp8_quantize_weight(weight, 1, 64, {1, 32}, codes, scales);
  EXPECT_EQ(scales[0], 127 - 48);
  EXPECT_EQ(scales[1], kUe8m0Nan);
}

}  // namespace
}  // namespace deepinfer
