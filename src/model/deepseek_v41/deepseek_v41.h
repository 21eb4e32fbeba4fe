// DeepSeek-V4.1: 40 layers in two halves. Hyper-connection weights are handed from sub-layer to sub-layer,
// compressed history is owned by a few layers and read by all that follow, Engram tables stand in front of
// some layers. docs/design/deepseek_v41.md gives the whole pass.
#pragma once

#include <memory>

#include "model/decoder.h"
#include "model/engram_hash.h"

namespace deepinfer {

/// Loads the text network. token_map: compressed ids for Engram (tokenizer/token_map.h); may be empty when
/// the configuration has no Engram layers.
Result<std::unique_ptr<Decoder>> open_deepseek_v41(Checkpoint checkpoint, const ModelConfig& config,
                                                   const ModelOptions& options,
                                                   std::vector<std::int32_t> token_map, CacheStorage cache);

}  // namespace deepinfer
