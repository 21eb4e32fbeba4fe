// RoPE frequencies of the two bases a network uses.
#pragma once

#include <vector>

#include "model/config.h"

namespace deepinfer {

/// Frequencies [rope_dim / 2] of layers without compression: theta^(-2i/rope_dim).
std::vector<float> plain_rope_frequencies(const ModelConfig& config);
/// Those of compressed layers: base compress_rope_theta with YaRN's interpolation ramp when the configuration
/// has one; no change of the softmax scale belongs to it.
std::vector<float> compressed_rope_frequencies(const ModelConfig& config);

}  // namespace deepinfer
