// Fixture of the CPU kernel tests: every test body runs on each instruction set this machine has.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "kernels/cpu/isa.h"
#include "kernels/random_weights.h"

namespace deepinfer::test {

class CpuKernelTest : public ::testing::TestWithParam<cpu::Isa> {
 protected:
  void SetUp() override { cpu::limit_isa(GetParam()); }
  void TearDown() override { cpu::limit_isa(cpu::available_isas().back()); }

  /// A new seed, the same in every run of the same test, printed when the test fails.
  std::mt19937 seeded(std::uint32_t seed) {
    trace_ = std::make_unique<::testing::ScopedTrace>(__FILE__, __LINE__, "seed " + std::to_string(seed));
    return std::mt19937(seed);
  }

 private:
  std::unique_ptr<::testing::ScopedTrace> trace_;
};

inline std::string isa_test_name(const ::testing::TestParamInfo<cpu::Isa>& info) {
  return std::string(cpu::isa_name(info.param));
}

}  // namespace deepinfer::test

#define DI_EVERY_ISA(fixture)                                                                     \
  INSTANTIATE_TEST_SUITE_P(Isa, fixture, ::testing::ValuesIn(::deepinfer::cpu::available_isas()), \
                           ::deepinfer::test::isa_test_name)
