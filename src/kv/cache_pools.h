// Who holds which cache block and which slot. A block is kBlockTokens positions of history across all pools
// of the model, a slot the window rings and compressor tails of one live sequence; both are plain indices
// into memory that the Model owns. Invariant: an id is either free or held by exactly one holder; freeing a
// free id is our bug. Every call is O(1) a block. The engine's thread is the only caller.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/result.h"
#include "model/model.h"

namespace deepinfer {

/// Hands out the ids 0 .. count-1, the most recently freed first (its memory is warm).
class IdPool {
 public:
  explicit IdPool(std::int64_t count);
  std::optional<std::int32_t> take();
  void give(std::int32_t id);
  std::int64_t count() const { return static_cast<std::int64_t>(held_.size()); }
  std::int64_t free_count() const { return static_cast<std::int64_t>(free_.size()); }
  std::int64_t used_count() const { return count() - free_count(); }

 private:
  std::vector<std::int32_t> free_;
  std::vector<bool> held_;
};

/// The blocks of one sequence: block of position p is entry p / kBlockTokens.
using BlockTable = std::vector<BlockId>;

/// Blocks that `positions` positions need.
constexpr std::int64_t blocks_for(std::int64_t positions) {
  return (positions + kBlockTokens - 1) / kBlockTokens;
}

/// Blocks and slots of one model, and what they weigh.
class CachePools {
 public:
  /// `max_blocks` > 0 uses only that many of the model's blocks.
  CachePools(const CacheSize& size, std::int64_t max_blocks, std::int64_t max_slots);

  /// Extends the table to cover `positions` positions: all blocks, or none and false.
  bool grow(BlockTable& table, std::int64_t positions);
  /// Shortens the table to what `positions` positions need.
  void shrink(BlockTable& table, std::int64_t positions);
  std::optional<SlotId> take_slot();
  void give_slot(SlotId slot) { slots_.give(slot); }

  std::int64_t free_blocks() const { return blocks_.free_count(); }
  std::int64_t used_blocks() const { return blocks_.used_count(); }
  std::int64_t block_count() const { return blocks_.count(); }
  std::int64_t free_slots() const { return slots_.free_count(); }
  std::int64_t used_slots() const { return slots_.used_count(); }
  std::int64_t slot_count() const { return slots_.count(); }
  std::int64_t bytes_used() const;
  std::int64_t bytes_total() const;
  /// Bytes of history one cached token costs (0 when the model does not say).
  double bytes_per_token() const;

  /// Makes grow() and take_slot() fail whenever the function says so: simulations of a cache that is full at
  /// a bad moment.
  void inject_faults(std::function<bool()> fails) { fails_ = std::move(fails); }

 private:
  IdPool blocks_, slots_;
  std::int64_t block_bytes_, slot_bytes_;
  std::function<bool()> fails_;
};

}  // namespace deepinfer
