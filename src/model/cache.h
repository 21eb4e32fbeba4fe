// A model's cache memory: history pools cut into blocks, and per-slot rings. Layout first (sizes only, so
// that a run can be planned), then storage. Everything is addressed by absolute position; nothing is ever
// shifted or cleared.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/ops.h"
#include "model/config.h"
#include "model/model.h"
#include "model/numerics.h"

namespace deepinfer {

/// Rows a window ring holds: the window plus what may be rolled back.
constexpr std::int64_t window_ring_rows(std::int64_t window) {
  return window + kMaxRollbackRows;
}

/// One compressor's pool, index keys and tail.
struct PoolLayout {
  std::int64_t layer = 0;
  std::int64_t ratio = 1;
  RecordFormat entry;
  RecordFormat index_key;             ///< bytes == 0: no indexer (V4 ratio 128)
  std::int64_t tail_width = 0;        ///< channels of c (and of g) kept per position; 0 for ratio 1
  std::int64_t index_tail_width = 0;  ///< V4 ratio 4: the indexer's own compressor
  std::int64_t tail_rows = 0;
};

struct CacheLayout {
  RecordFormat window;             ///< of every layer
  std::int64_t window_layers = 0;  ///< backbone layers
  std::int64_t ring = 0;
  std::vector<PoolLayout> pools;  ///< one per pool owner, ascending layer

  static CacheLayout of(const ModelConfig& config, const Numerics& numerics);

  /// History bytes of one block (kBlockTokens positions in all pools and index keys).
  std::int64_t block_bytes() const;
  /// Bytes a sequence's slot takes: window rings and compressor tails.
  std::int64_t slot_bytes() const;
  /// Average history bytes of one position.
  double bytes_per_token() const { return static_cast<double>(block_bytes()) / kBlockTokens; }
};

/// Owns the memory of one model's cache.
class CacheStorage {
 public:
  /// Errors: kOutOfMemory with the sizes. Fresh pages are zero; they are touched on first use only.
  static Result<CacheStorage> create(const CacheLayout& layout, CacheSize size);

  const CacheLayout& layout() const { return layout_; }
  CacheSize size() const { return size_; }
  WindowCache window(std::int64_t layer) const;
  /// pool: index into CacheLayout::pools.
  PoolCache entries(std::size_t pool) const;
  PoolCache index_keys(std::size_t pool) const;
  /// Tail ring of a pool's compressor (index = false) or of its indexer's compressor; slot stride in floats.
  float* tail(std::size_t pool, bool index) const;
  std::int64_t tail_slot_stride(std::size_t pool, bool index) const;

 private:
  struct Unmap {
    Unmap() : size(0) {}
    explicit Unmap(std::size_t bytes) : size(bytes) {}
    std::size_t size;
    void operator()(std::uint8_t* p) const;
  };
  using Region = std::unique_ptr<std::uint8_t, Unmap>;
  static Result<Region> reserve(std::int64_t bytes, const std::string& what);

  CacheLayout layout_;
  CacheSize size_;
  Region window_;
  std::vector<Region> entries_, index_keys_, tails_, index_tails_;
};

}  // namespace deepinfer
