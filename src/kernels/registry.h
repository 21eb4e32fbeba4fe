// Which function computes which operator. A back end offers implementations of single operators; the table a
// model runs on takes the fastest that this machine can execute and the reference for the rest. `deepinfer
// doctor` prints the choice.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/ops.h"

namespace deepinfer {

/// Bits of an implementation against the reference.
enum class NumericsClass {
  kBitExact,   ///< equal to the reference bit for bit
  kTolerance,  ///< same formula, other rounding; the test states the bound
};

/// One implementation of one operator.
struct Kernel {
  std::string_view op;       ///< the name of the OpTable entry
  std::string_view backend;  ///< "ref" or "cpu"
  std::string_view isa;      ///< what it was chosen for, such as "any" or "avx2 or avx512, at run time"
  NumericsClass numerics;
  void (*install)(OpTable&);  ///< puts itself into the table
  bool (*usable)();           ///< can this machine execute it?
};

/// Every implementation in the program, reference first; later ones of the same operator are faster.
std::span<const Kernel> all_kernels();

/// kReference: the plain loops only. kFast: the last usable implementation of each operator.
enum class KernelChoice { kReference, kFast };
OpTable make_op_table(KernelChoice choice);

/// The kernels make_op_table(choice) installed, one an operator.
std::vector<Kernel> chosen_kernels(KernelChoice choice);

/// Does the linear operator of this choice read packed weights?
bool wants_packed_weights(KernelChoice choice);

}  // namespace deepinfer
