#include "kernels/cpu/isa.h"

#include <hwy/targets.h>

namespace deepinfer::cpu {
namespace {

bool supports([[maybe_unused]] std::int64_t targets, [[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return (targets & HWY_AVX3) != 0;
  if (isa == Isa::kAvx2) return (targets & HWY_AVX2) != 0;
#endif
  return isa == Isa::kPortable;
}

// What the processor has, asked once before any limit is set.
std::int64_t machine_targets() {
  static const std::int64_t targets = [] {
    hwy::SetSupportedTargetsForTest(0);
    return hwy::SupportedTargets();
  }();
  return targets;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "";
}

std::vector<Isa> available_isas() {
  std::vector<Isa> found;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (supports(machine_targets(), isa)) found.push_back(isa);
  }
  return found;
}

Isa current_isa() {
  const std::int64_t targets = hwy::SupportedTargets();
  for (const Isa isa : {Isa::kAvx512, Isa::kAvx2}) {
    if (supports(targets, isa)) return isa;
  }
  return Isa::kPortable;
}

void limit_isa(Isa isa) {
  std::int64_t targets = machine_targets();
#if defined(__x86_64__)
  // Better targets are lower bits: 2 * HWY_AVX2 - 1 is "AVX2 and better".
  if (isa == Isa::kPortable) targets &= ~(2 * std::int64_t{HWY_SSSE3} - 1);
  if (isa == Isa::kAvx2) targets &= ~(std::int64_t{HWY_AVX2} - 1);
#else
  static_cast<void>(isa);
#endif
  hwy::SetSupportedTargetsForTest(targets);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace deepinfer::cpu
