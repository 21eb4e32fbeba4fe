#include "kernels/rope_table.h"

#include <cmath>

namespace deepinfer {

void fill_rope_table(std::span<const std::int64_t> position, std::span<const float> frequency,
                     float* rotation) {
  for (const std::int64_t p : position) {
    for (const float f : frequency) {
      const double angle = static_cast<double>(static_cast<float>(p) * f);
      *rotation++ = static_cast<float>(std::cos(angle));
      *rotation++ = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace deepinfer
