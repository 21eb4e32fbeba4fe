// The one interface between the engine and a network: a ragged list of rows in, hidden rows and logits out.
//
// There is no separate prefill, decode or verification path: a step is a list of chunks, each a run of
// consecutive positions of one sequence. The bits of a row depend on that sequence's tokens alone, never on
// the other chunks, on where the chunk borders lie, or on the number of threads.
//
// History lives in cache blocks (kBlockTokens positions across all pools) named by the caller's block table,
// and in a slot (window rings, compressor tails) owned by one sequence at a time. Both are addressed by
// absolute position, so going back by up to kMaxRollbackRows rows is done by calling forward() again with a
// smaller `start`: nothing has to be undone. One thread calls a Model at a time.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "deepinfer/types.h"

namespace deepinfer {

struct ModelConfig;

/// Positions per cache block; a multiple of every compression ratio and of the window.
inline constexpr std::int64_t kBlockTokens = 256;
/// How many of the newest rows of a sequence may be dropped again without recomputing older ones.
inline constexpr std::int64_t kMaxRollbackRows = 16;

using BlockId = std::int32_t;
using SlotId = std::int32_t;

/// Consecutive rows of one sequence. All spans belong to the caller and must live until forward() returns.
struct Chunk {
  SlotId slot = 0;
  std::int64_t start = 0;           ///< absolute position of tokens[0]
  std::span<const TokenId> tokens;  ///< the rows; at least one
  std::span<const TokenId>
      history;  ///< the sequence's ids [0, start), at least the last 3 of them when start >= 3
  std::span<const BlockId>
      blocks;  ///< block of position p is blocks[p / kBlockTokens]; covers start+tokens.size()
  std::int64_t logits_from = 0;  ///< rows tokens[logits_from ..] get an output row; tokens.size() = none
};

/// How much cache a Model was opened with.
struct CacheSize {
  std::int64_t block_count = 0;
  std::int64_t slot_count = 0;
  std::int64_t block_bytes =
      0;  ///< all pools of one block; block_bytes / kBlockTokens is the cost of a cached token
  std::int64_t slot_bytes = 0;  ///< rings and tails of one live sequence, whatever its length
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelConfig& config() const = 0;
  virtual std::int64_t vocab_size() const = 0;
  virtual CacheSize cache_size() const = 0;
  /// The most rows one forward() takes (activation buffers are sized for it at load).
  virtual std::int64_t max_rows() const = 0;

  /// Computes all chunks (each slot at most once) and keeps the final hidden rows of the wanted positions, in
  /// chunk order, until the next call. Errors: kInternal with the operator's name when a value is not finite.
  virtual Status forward(std::span<const Chunk> chunks) = 0;
  /// Output rows of the last forward().
  virtual std::int64_t output_rows() const = 0;
  /// Logits [count, vocab_size] fp32 of output rows [first, first+count). May be called in tiles of any size;
  /// the bits do not depend on the tiling.
  virtual Status logits(std::int64_t first, std::int64_t count, std::span<float> out) = 0;
};

}  // namespace deepinfer
