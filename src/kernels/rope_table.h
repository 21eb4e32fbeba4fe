// Cosines and sines for RoPE, tabulated once a step and shared by all layers of one base.
#pragma once

#include <cstdint>
#include <span>

namespace deepinfer {

/// rotation[t][i] = (cos, sin) of fp32(position[t] * frequency[i]); each correctly rounded from double.
/// rotation: [positions, frequencies, 2].
void fill_rope_table(std::span<const std::int64_t> position, std::span<const float> frequency,
                     float* rotation);

}  // namespace deepinfer
