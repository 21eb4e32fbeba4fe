#include "kv/cache_pools.h"

#include <algorithm>

namespace deepinfer {
namespace {

std::int64_t capped(std::int64_t have, std::int64_t limit) {
  return limit > 0 ? std::min(have, limit) : have;
}

}  // namespace

IdPool::IdPool(std::int64_t count) : held_(static_cast<std::size_t>(count), false) {
  DI_CHECK(count >= 0 && count <= INT32_MAX, "pool of ", count, " ids");
  free_.reserve(static_cast<std::size_t>(count));
  for (std::int64_t id = count - 1; id >= 0; --id) free_.push_back(static_cast<std::int32_t>(id));
}

std::optional<std::int32_t> IdPool::take() {
  if (free_.empty()) return std::nullopt;
  const std::int32_t id = free_.back();
  free_.pop_back();
  held_[static_cast<std::size_t>(id)] = true;
  return id;
}

void IdPool::give(std::int32_t id) {
  DI_CHECK(id >= 0 && id < count() && held_[static_cast<std::size_t>(id)], "id ", id, " is not held");
  held_[static_cast<std::size_t>(id)] = false;
  free_.push_back(id);
}

CachePools::CachePools(const CacheSize& size, std::int64_t max_blocks, std::int64_t max_slots)
    : blocks_(capped(size.block_count, max_blocks)),
      slots_(capped(size.slot_count, max_slots)),
      block_bytes_(size.block_bytes),
      slot_bytes_(size.slot_bytes) {}

bool CachePools::grow(BlockTable& table, std::int64_t positions) {
  const std::int64_t missing = blocks_for(positions) - static_cast<std::int64_t>(table.size());
  if (missing <= 0) return true;
  if (missing > blocks_.free_count() || (fails_ && fails_())) return false;
  for (std::int64_t i = 0; i < missing; ++i) table.push_back(*blocks_.take());
  return true;
}

void CachePools::shrink(BlockTable& table, std::int64_t positions) {
  const std::size_t keep = static_cast<std::size_t>(blocks_for(positions));
  while (table.size() > keep) {
    blocks_.give(table.back());
    table.pop_back();
  }
}

std::optional<SlotId> CachePools::take_slot() {
  if (fails_ && fails_()) return std::nullopt;
  return slots_.take();
}

std::int64_t CachePools::bytes_used() const {
  return used_blocks() * block_bytes_ + used_slots() * slot_bytes_;
}

std::int64_t CachePools::bytes_total() const {
  return block_count() * block_bytes_ + slot_count() * slot_bytes_;
}

double CachePools::bytes_per_token() const {
  return static_cast<double>(block_bytes_) / static_cast<double>(kBlockTokens);
}

}  // namespace deepinfer
