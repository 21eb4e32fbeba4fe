#include "model/cache.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include "base/check.h"

namespace deepinfer {

CacheLayout CacheLayout::of(const ModelConfig& config, const Numerics& numerics) {
  const bool v41 = config.family == Family::kDeepseekV41;
  const RecordKind split = numerics.bf16_activations ? RecordKind::kFp8Split64 : RecordKind::kFp8Split64F32;
  const RecordKind window = v41 ? RecordKind::kFp8Block32 : split;
  const RecordKind entry = v41 ? RecordKind::kFp4Block16 : split;
  const auto format = [&](RecordKind kind, std::int64_t dim, std::int64_t rope) {
    return make_record_format(numerics.cache_rounding ? kind : RecordKind::kF32, dim, rope);
  };
  CacheLayout layout;
  layout.window = format(window, config.head_dim, config.rope_dim);
  layout.window_layers = config.layers;
  layout.ring = window_ring_rows(config.window);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const LayerPlan& plan = config.plan[static_cast<std::size_t>(layer)];
    if (!plan.owns_pool) continue;
    PoolLayout pool;
    pool.layer = layer;
    pool.ratio = plan.ratio;
    pool.entry = format(entry, config.head_dim, config.rope_dim);
    if (v41 || plan.runs_index) pool.index_key = format(RecordKind::kFp4Block32, config.index_head_dim, 0);
    if (plan.ratio > 1) {
      const std::int64_t series = plan.overlap ? 2 : 1;
      pool.tail_width = series * config.head_dim;
      if (!v41 && plan.runs_index) pool.index_tail_width = series * config.index_head_dim;
      // The pending group, the previous one where series overlap, and what a rollback may drop.
      pool.tail_rows = series * plan.ratio + kMaxRollbackRows;
    }
    layout.pools.push_back(pool);
  }
  return layout;
}

std::int64_t CacheLayout::block_bytes() const {
  std::int64_t bytes = 0;
  for (const PoolLayout& p : pools) bytes += kBlockTokens / p.ratio * (p.entry.bytes + p.index_key.bytes);
  return bytes;
}

std::int64_t CacheLayout::slot_bytes() const {
  std::int64_t bytes = window_layers * ring * window.bytes;
  for (const PoolLayout& p : pools) bytes += p.tail_rows * 2 * (p.tail_width + p.index_tail_width) * 4;
  return bytes;
}

void CacheStorage::Unmap::operator()(std::uint8_t* p) const {
  munmap(p, size);
}

Result<CacheStorage::Region> CacheStorage::reserve(std::int64_t bytes, const std::string& what) {
  if (bytes == 0) return Region(nullptr, Unmap(0));
  void* p = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    return Error{ErrorCode::kOutOfMemory,
                 fmt::format("no room for {:.1f} MiB of {}; use fewer blocks or sequences",
                             static_cast<double>(bytes) / (1 << 20), what),
                 "cache"};
  }
  return Region(static_cast<std::uint8_t*>(p), Unmap(static_cast<std::size_t>(bytes)));
}

Result<CacheStorage> CacheStorage::create(const CacheLayout& layout, CacheSize size) {
  if (size.block_count < 1 || size.slot_count < 1)
    return invalid_argument("at least one block and one slot", "cache");
  if (size.block_count > (std::int64_t{1} << 31) - 1)
    return invalid_argument("more than 2^31 - 1 blocks", "cache");
  CacheStorage s;
  s.layout_ = layout;
  s.size_ = {size.block_count, size.slot_count, layout.block_bytes(), layout.slot_bytes()};
  DI_ASSIGN(s.window_, reserve(layout.window_layers * size.slot_count * layout.ring * layout.window.bytes,
                               "window rings"));
  for (const PoolLayout& p : layout.pools) {
    const std::int64_t entries = size.block_count * (kBlockTokens / p.ratio);
    DI_ASSIGN(Region pool, reserve(entries * p.entry.bytes, "history"));
    DI_ASSIGN(Region keys, reserve(entries * p.index_key.bytes, "index keys"));
    DI_ASSIGN(Region tail, reserve(size.slot_count * p.tail_rows * 2 * p.tail_width * 4, "compressor tails"));
    DI_ASSIGN(Region index_tail,
              reserve(size.slot_count * p.tail_rows * 2 * p.index_tail_width * 4, "indexer tails"));
    s.entries_.push_back(std::move(pool));
    s.index_keys_.push_back(std::move(keys));
    s.tails_.push_back(std::move(tail));
    s.index_tails_.push_back(std::move(index_tail));
  }
  return s;
}

WindowCache CacheStorage::window(std::int64_t layer) const {
  const std::int64_t slot_stride = layout_.ring * layout_.window.bytes;
  return {window_.get() + layer * size_.slot_count * slot_stride, slot_stride, layout_.ring, layout_.window};
}

PoolCache CacheStorage::entries(std::size_t pool) const {
  const PoolLayout& p = layout_.pools[pool];
  return {entries_[pool].get(), kBlockTokens / p.ratio * p.entry.bytes, p.ratio, p.entry};
}

PoolCache CacheStorage::index_keys(std::size_t pool) const {
  const PoolLayout& p = layout_.pools[pool];
  return {index_keys_[pool].get(), kBlockTokens / p.ratio * p.index_key.bytes, p.ratio, p.index_key};
}

float* CacheStorage::tail(std::size_t pool, bool index) const {
  return reinterpret_cast<float*>((index ? index_tails_ : tails_)[pool].get());
}

std::int64_t CacheStorage::tail_slot_stride(std::size_t pool, bool index) const {
  const PoolLayout& p = layout_.pools[pool];
  return p.tail_rows * 2 * (index ? p.index_tail_width : p.tail_width);
}

}  // namespace deepinfer
