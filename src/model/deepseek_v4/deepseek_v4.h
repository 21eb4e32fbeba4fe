// DeepSeek-V4: every layer owns its history. Window-only layers, layers that select among groups of 4
// positions and layers that read every group of 128 alternate; the first layers route by token id; each
// sub-layer collapses the streams by its own weights, and a small head collapses them at the end.
// docs/design/deepseek_v4.md gives the whole pass.
#pragma once

#include <memory>

#include "model/decoder.h"

namespace deepinfer {

/// Loads the text network; draft tensors (`mtp.*`) stay untouched in the mapping. Errors: kCorrupt when a
/// routing table names an expert that does not exist.
Result<std::unique_ptr<Decoder>> open_deepseek_v4(Checkpoint checkpoint, const ModelConfig& config,
                                                  const ModelOptions& options, CacheStorage cache);

}  // namespace deepinfer
