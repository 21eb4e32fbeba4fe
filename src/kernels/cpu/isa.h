// Which instruction set the CPU kernels run on. Chosen at the first use from what the machine has; tests and
// measurements may lower it. Results do not depend on it.
#pragma once

#include <string_view>
#include <vector>

namespace deepinfer::cpu {

enum class Isa { kPortable, kAvx2, kAvx512 };

/// "portable", "avx2", "avx512".
std::string_view isa_name(Isa isa);

/// What this machine can run, slowest first. On processors that are not x86: only kPortable, which then
/// stands for the vector unit the build targets.
std::vector<Isa> available_isas();

/// The instruction set in use.
Isa current_isa();

/// Uses nothing above `isa` from now on. Not while a kernel runs.
void limit_isa(Isa isa);

}  // namespace deepinfer::cpu
