// The table of kernels: every operator has a reference and a fast CPU version, and both choices fill every
// entry.
#include "kernels/registry.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

#include "kernels/cpu/isa.h"

namespace deepinfer {
namespace {

constexpr std::size_t kOperators = sizeof(OpTable) / sizeof(void (*)());

std::size_t empty_entries(const OpTable& table) {
  std::size_t empty = 0;
  for (std::size_t i = 0; i < kOperators; ++i) {
    void (*entry)() = nullptr;
    std::memcpy(&entry, reinterpret_cast<const char*>(&table) + i * sizeof(entry), sizeof(entry));
    empty += entry == nullptr;
  }
  return empty;
}

TEST(KernelRegistry, EveryOperatorHasAReferenceAndACpuKernel) {
  std::map<std::string_view, std::multiset<std::string_view>> backends;
  for (const Kernel& kernel : all_kernels()) backends[kernel.op].insert(kernel.backend);
  EXPECT_EQ(backends.size(), kOperators);
  for (const auto& [op, found] : backends) {
    EXPECT_EQ(found.count("ref"), 1u) << op;
    EXPECT_EQ(found.count("cpu"), 1u) << op;
  }
}

TEST(KernelRegistry, BothChoicesFillTheTable) {
  EXPECT_EQ(empty_entries(make_op_table(KernelChoice::kReference)), 0u);
  EXPECT_EQ(empty_entries(make_op_table(KernelChoice::kFast)), 0u);
  EXPECT_EQ(empty_entries(OpTable{}), kOperators);
}

TEST(KernelRegistry, FastMeansVectorCodeAndIsLeftToTheReferenceWithoutIt) {
  const bool vector = cpu::available_isas().back() != cpu::Isa::kPortable;
  EXPECT_EQ(wants_packed_weights(KernelChoice::kFast), vector);
  EXPECT_FALSE(wants_packed_weights(KernelChoice::kReference));
  cpu::limit_isa(cpu::Isa::kPortable);
  for (const Kernel& kernel : chosen_kernels(KernelChoice::kFast))
    EXPECT_EQ(kernel.backend, "ref") << kernel.op;
  cpu::limit_isa(cpu::available_isas().back());
}

}  // namespace
}  // namespace deepinfer
