#include "tensor/float_formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace deepinfer {
namespace {

std::uint32_t bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

/// Nearest value of an ascending grid by double-precision distance; a tie takes the even index. The slow
/// definition.
int nearest_index(double a, const std::vector<double>& grid) {
  int best = 0;
  for (int i = 1; i < static_cast<int>(grid.size()); ++i) {
    const double d = std::fabs(a - grid[static_cast<std::size_t>(i)]);
    const double e = std::fabs(a - grid[static_cast<std::size_t>(best)]);
    if (d < e || (d == e && i % 2 == 0)) best = i;
  }
  return best;
}

/// Positive e4m3fn values computed from the format's definition, codes 0..126.
std::vector<double> e4m3_grid() {
  std::vector<double> grid;
  for (int code = 0; code < 127; ++code) {
    const int e = code >> 3;
    const int m = code & 7;
    grid.push_back(e == 0 ? std::ldexp(m, -9) : std::ldexp(8 + m, e - 10));
  }
  return grid;
}

/// Every grid value, every midpoint, and the fp32 neighbours of both.
std::vector<float> probes(const std::vector<double>& grid) {
  std::vector<float> out = {0.0f, 1e-45f, 1e-38f, 1e-10f, 1e30f, 3.4e38f};
  const auto add = [&out](double x) {
    const auto f = static_cast<float>(x);
    ASSERT_EQ(static_cast<double>(f), x) << "probe is not an fp32 value";
    for (float v : {f, std::nextafter(f, INFINITY), std::nextafter(f, 0.0f)}) out.push_back(v);
  };
  for (std::size_t i = 0; i < grid.size(); ++i) {
    add(grid[i]);
    if (i > 0) add((grid[i] + grid[i - 1]) / 2);
  }
  return out;
}

TEST(Bf16, EveryCodeRoundTrips) {
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const auto b = static_cast<std::uint16_t>(code);
    const float x = bf16_to_f32(b);
    EXPECT_EQ(bits(x), code << 16);
    if (std::isnan(x)) {
      EXPECT_EQ(f32_to_bf16(x), b | 0x40u);
    } else {
      EXPECT_EQ(f32_to_bf16(x), b);
    }
  }
}

TEST(Bf16, EveryMidpointGoesToTheEvenCodeAndItsNeighboursToTheNearer) {
  for (std::uint32_t code = 0; code < 0x7f80; ++code) {  // positive finite codes; the sign is carried along
    const std::uint32_t middle = (code << 16) | 0x8000u;
    for (const std::uint32_t sign : {0u, 0x80000000u}) {
      const std::uint32_t s = sign >> 16;
      EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(sign | middle)), s | (code + (code & 1u)));
      EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(sign | (middle - 1))), s | code);
      EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(sign | (middle + 1))), s | (code + 1));
    }
  }
}

TEST(Bf16, NanNeverBecomesInfinity) {
  for (const std::uint32_t u : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0x7f80ffffu}) {
    const std::uint16_t b = f32_to_bf16(std::bit_cast<float>(u));
    EXPECT_TRUE(std::isnan(bf16_to_f32(b))) << std::hex << u;
    EXPECT_EQ(b >> 15, u >> 31);
  }
  EXPECT_EQ(f32_to_bf16(INFINITY), 0x7f80u);
  EXPECT_EQ(f32_to_bf16(3.4028235e38f), 0x7f80u);
}

TEST(F16, EveryCodeDecodesByTheDefinition) {
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const int e = static_cast<int>(code >> 10) & 31;
    const int m = static_cast<int>(code) & 1023;
    const float x = f16_to_f32(static_cast<std::uint16_t>(code));
    if (e == 31 && m != 0) {
      EXPECT_TRUE(std::isnan(x));
      continue;
    }
    const double magnitude = e == 31 ? INFINITY : e == 0 ? std::ldexp(m, -24) : std::ldexp(1024 + m, e - 25);
    EXPECT_EQ(static_cast<double>(std::fabs(x)), magnitude) << code;
    EXPECT_EQ(std::signbit(x), code >= 0x8000u);
  }
}

TEST(E4m3, EveryCodeDecodesByTheDefinitionAndEncodesBack) {
  const std::vector<double> grid = e4m3_grid();
  EXPECT_EQ(grid.back(), 448.0);
  for (int code = 0; code < 256; ++code) {
    const auto c = static_cast<std::uint8_t>(code);
    const float x = e4m3_to_f32(c);
    if ((code & 127) == 127) {
      EXPECT_TRUE(std::isnan(x));
      continue;
    }
    EXPECT_EQ(static_cast<double>(std::fabs(x)), grid[static_cast<std::size_t>(code & 127)]);
    EXPECT_EQ(std::signbit(x), code >= 128);
    EXPECT_EQ(f32_to_e4m3(x), c);
  }
}

TEST(E4m3, EncodesEveryTieAndNeighbourLikeTheNearestSearch) {
  const std::vector<double> grid = e4m3_grid();
  for (const float x : probes(grid)) {
    const int want = nearest_index(std::fmin(static_cast<double>(x), 448.0), grid);
    EXPECT_EQ(f32_to_e4m3(x), want) << x;
    EXPECT_EQ(f32_to_e4m3(-x), want | 128) << x;
  }
  EXPECT_EQ(f32_to_e4m3(INFINITY), 0x7e);
  EXPECT_EQ(f32_to_e4m3(-INFINITY), 0xfe);
  EXPECT_EQ(f32_to_e4m3(std::nanf("")) & 0x7f, 0x7f);
}

TEST(E4m3, EncodesEveryBf16LikeTheNearestSearch) {
  const std::vector<double> grid = e4m3_grid();
  for (std::uint32_t code = 0; code < 0x7f80; ++code) {
    const float x = bf16_to_f32(static_cast<std::uint16_t>(code));
    ASSERT_EQ(f32_to_e4m3(x), nearest_index(std::fmin(static_cast<double>(x), 448.0), grid)) << x;
  }
}

TEST(E2m1, EncodesEveryTieToTheEvenCode) {
  const std::vector<double> grid = {0, .5, 1, 1.5, 2, 3, 4, 6};
  for (const float x : probes(grid)) {
    const int want = nearest_index(std::fmin(static_cast<double>(x), 6.0), grid);
    EXPECT_EQ(f32_to_e2m1(x), want) << x;
    EXPECT_EQ(f32_to_e2m1(-x), want | 8) << x;
  }
  const std::pair<float, float> ties[] = {{.25f, 0}, {.75f, 1}, {1.25f, 1}, {1.75f, 2},
                                          {2.5f, 2}, {3.5f, 4}, {5, 4}};
  for (const auto& [x, want] : ties) EXPECT_EQ(e2m1_to_f32(f32_to_e2m1(x)), want) << x;
  EXPECT_EQ(f32_to_e2m1(INFINITY), 7);
}

TEST(E2m1, EveryCodeRoundTripsAndPacksLowNibbleFirst) {
  for (std::uint8_t code = 0; code < 16; ++code) {
    EXPECT_EQ(f32_to_e2m1(e2m1_to_f32(code)), code);
    EXPECT_EQ(pack_e2m1(code, 0), code);
    EXPECT_EQ(pack_e2m1(0, code), code << 4);
  }
}

TEST(Ue8m0, EveryByteIsThePowerOfTwo) {
  for (int byte = 0; byte < 255; ++byte) {
    const float x = ue8m0_to_f32(static_cast<std::uint8_t>(byte));
    EXPECT_EQ(static_cast<double>(x), std::ldexp(1.0, byte - 127));
    if (byte >= 1 && byte <= 253) {
      EXPECT_EQ(x * ue8m0_reciprocal(static_cast<std::uint8_t>(byte)), 1.0f);
    }
  }
  EXPECT_TRUE(std::isnan(ue8m0_to_f32(255)));
  EXPECT_TRUE(std::isnan(ue8m0_reciprocal(255)));
}

TEST(Ue8m0, CeilLog2IsExactAroundEveryPowerOfTwo) {
  for (int e = -126; e <= 127; ++e) {
    const auto p = static_cast<float>(std::ldexp(1.0, e));
    EXPECT_EQ(ceil_log2_ue8m0(p), e + 127);
    if (e < 127) {
      EXPECT_EQ(ceil_log2_ue8m0(std::nextafter(p, INFINITY)), e + 128);
    }
    if (e > -126) {
      EXPECT_EQ(ceil_log2_ue8m0(std::nextafter(p, 0.0f)), e + 127);
    }
  }
  EXPECT_EQ(ceil_log2_ue8m0(INFINITY), kUe8m0Nan);
  EXPECT_EQ(ceil_log2_ue8m0(std::nanf("")), kUe8m0Nan);
}

TEST(FloatFormats, RandomBitPatternsAgreeWithTheNearestSearch) {
  const std::uint64_t seed = 20261201;
  RecordProperty("seed", static_cast<int>(seed));
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 rng(seed);
  const std::vector<double> fp8 = e4m3_grid();
  const std::vector<double> fp4 = {0, .5, 1, 1.5, 2, 3, 4, 6};
  for (int i = 0; i < 200000; ++i) {
    // exponents near the two formats' ranges, any mantissa
    const auto u = static_cast<std::uint32_t>(rng());
    const float x = std::bit_cast<float>(((u >> 23) % 24 + 115) << 23 | (u & 0x7fffffu));
    ASSERT_EQ(f32_to_e4m3(x), nearest_index(std::fmin(static_cast<double>(x), 448.0), fp8)) << x;
    ASSERT_EQ(f32_to_e2m1(x), nearest_index(std::fmin(static_cast<double>(x), 6.0), fp4)) << x;
  }
}

}  // namespace
}  // namespace deepinfer
