// Writes a checkpoint of any shape with random weights in the formats its config.json asks for. The values
// are made to be unkind: heavy tails, tiles far larger than their neighbours, scales from 2^-126 to 2^127,
// subnormal codes, while the network's streams and logits stay in an ordinary range. For tests and
// measurements of shapes nobody has trained.
#pragma once

#include <cstdint>
#include <string>

#include "model/convert/checkpoint_writer.h"

namespace deepinfer {

struct RandomOptions {
  std::uint64_t seed = 0;
  std::int64_t max_shard_bytes = std::int64_t{1} << 30;
};

/// `config_text` is a config.json; the copy in `target` (new or empty) is the same text. A network with
/// Engram tables also gets engram_token_map.i32. The bytes depend on the text, the seed and nothing else.
/// Errors: those of parse_config, and kInvalidArgument with the right numbers when engram_num_embeddings does
/// not fit the other engram fields.
Result<WrittenCheckpoint> random_checkpoint(const std::string& config_text, const std::string& target,
                                            const RandomOptions& options);

}  // namespace deepinfer
