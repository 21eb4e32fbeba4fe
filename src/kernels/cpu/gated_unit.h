// The elementwise part of an expert between its two products, for one stretch of channels.
#pragma once

#include <cstdint>

namespace deepinfer::cpu {

/// g[i] = silu(min(g, limit)) * clamp(p, ±limit) * weight; with quantize_block > 0 then rounded to bf16 and
/// through FP8 per that many channels (the stretch starts at a multiple of it). In place.
void gated_unit(float* g, const float* p, std::int64_t count, float limit, float weight,
                std::int64_t quantize_block);

/// sum[i] += y[i].
void add_row(float* sum, const float* y, std::int64_t count);

/// x[i] = bf16(x[i]).
void bf16_row(float* x, std::int64_t count);

}  // namespace deepinfer::cpu
