#include "kernels/registry.h"

#include <array>

#include "base/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"
#include "kernels/ref/ref.h"

namespace deepinfer {
namespace {

#define DI_REF_KERNEL(name)                                                  \
  Kernel {                                                                   \
#name, "ref", "any", NumericsClass::kBitExact,                           \
        [](OpTable & table) { table.name = ref::name; }, [] { return true; } \
  }
// The portable form of the CPU kernels is exact but no faster than the reference, so it is not chosen.
#define DI_CPU_KERNEL(name)                                                                             \
  Kernel {                                                                                              \
#name, "cpu", "avx512 or avx2, at run time", NumericsClass::kBitExact,                              \
        [](OpTable &                                                                                    \
           table) { table.name = cpu::name; }, [] { return cpu::current_isa() != cpu::Isa::kPortable; } \
  }

constexpr std::array kKernels = {
    DI_REF_KERNEL(linear),       DI_REF_KERNEL(grouped_linear), DI_REF_KERNEL(rms_norm),
    DI_REF_KERNEL(rope),         DI_REF_KERNEL(quantize),       DI_REF_KERNEL(embed),
    DI_REF_KERNEL(hyper_mix),    DI_REF_KERNEL(hyper_head),     DI_REF_KERNEL(hyper_collapse),
    DI_REF_KERNEL(hyper_expand), DI_REF_KERNEL(cache_round),    DI_REF_KERNEL(window_write),
    DI_REF_KERNEL(compress),     DI_REF_KERNEL(pool_write),     DI_REF_KERNEL(hadamard),
    DI_REF_KERNEL(index_select), DI_REF_KERNEL(attention),      DI_REF_KERNEL(route),
    DI_REF_KERNEL(experts),      DI_REF_KERNEL(engram_gather),  DI_REF_KERNEL(engram_gate),
    DI_CPU_KERNEL(linear),       DI_CPU_KERNEL(grouped_linear), DI_CPU_KERNEL(rms_norm),
    DI_CPU_KERNEL(rope),         DI_CPU_KERNEL(quantize),       DI_CPU_KERNEL(embed),
    DI_CPU_KERNEL(hyper_mix),    DI_CPU_KERNEL(hyper_head),     DI_CPU_KERNEL(hyper_collapse),
    DI_CPU_KERNEL(hyper_expand), DI_CPU_KERNEL(cache_round),    DI_CPU_KERNEL(window_write),
    DI_CPU_KERNEL(compress),     DI_CPU_KERNEL(pool_write),     DI_CPU_KERNEL(hadamard),
    DI_CPU_KERNEL(index_select), DI_CPU_KERNEL(attention),      DI_CPU_KERNEL(route),
    DI_CPU_KERNEL(experts),      DI_CPU_KERNEL(engram_gather),  DI_CPU_KERNEL(engram_gate),
};

#undef DI_REF_KERNEL
#undef DI_CPU_KERNEL

}  // namespace

std::span<const Kernel> all_kernels() {
  return kKernels;
}

std::vector<Kernel> chosen_kernels(KernelChoice choice) {
  std::vector<Kernel> chosen;
  for (const Kernel& kernel : all_kernels()) {
    if (kernel.backend == "ref") {
      chosen.push_back(kernel);
      continue;
    }
    if (choice == KernelChoice::kReference || !kernel.usable()) continue;
    for (Kernel& present : chosen) {
      if (present.op == kernel.op) present = kernel;
    }
  }
  return chosen;
}

OpTable make_op_table(KernelChoice choice) {
  OpTable table{};
  for (const Kernel& kernel : chosen_kernels(choice)) kernel.install(table);
  return table;
}

bool wants_packed_weights(KernelChoice choice) {
  for (const Kernel& kernel : chosen_kernels(choice)) {
    if (kernel.op == "linear") return kernel.backend != "ref";
  }
  return false;
}

}  // namespace deepinfer
