#include "kernels/cpu/pack.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/thread_pool.h"
#include "tensor/float_formats.h"

namespace deepinfer::cpu {
namespace {

constexpr std::int64_t kBlock = kAccumulateBlock;
constexpr std::size_t kFront = kAlignment;  // so that loads may start up to three bytes before a tile

std::int64_t up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
std::size_t zu(std::int64_t v) {
  return static_cast<std::size_t>(v);
}

// Bits of one stored value.
std::int64_t bits_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return 32;
    case WeightFormat::kBf16:
      return 16;
    case WeightFormat::kFp8:
      return 8;
    case WeightFormat::kFp4:
      return 4;
  }
  return 0;
}

struct Layout {
  std::int64_t tiles;
  std::int64_t blocks;       // of 32 k
  std::int64_t block_bytes;  // of one tile
  std::size_t code_bytes;
  std::size_t scale_bytes;
};

Layout layout_of(const Weight& w) {
  Layout l{};
  l.tiles = up(w.n, kPackRows);
  l.blocks = up(w.k, kBlock);
  l.block_bytes = kPackRows * kBlock * bits_of(w.format) / 8;
  l.code_bytes = zu(l.tiles * l.blocks * l.block_bytes);
  if (w.format == WeightFormat::kFp8) l.scale_bytes = zu(l.tiles * l.blocks);
  if (w.format == WeightFormat::kFp4) l.scale_bytes = zu(l.tiles * l.blocks * kPackRows);
  l.scale_bytes = (l.scale_bytes + kAlignment - 1) / kAlignment * kAlignment;
  return l;
}

// 16 rows of one tile: words of 4 bytes transposed, missing rows and columns zero.
void pack_tile(const Weight& w, std::int64_t tile, const Layout& l, std::uint8_t* out) {
  const std::int64_t row_bytes = w.k * bits_of(w.format) / 8;
  const std::int64_t words = l.blocks * l.block_bytes / (4 * kPackRows);
  const std::int64_t rows = std::min(kPackRows, w.n - tile * kPackRows);
  if (rows < kPackRows || row_bytes != words * 4) std::memset(out, 0, zu(l.blocks * l.block_bytes));
  const std::int64_t whole = row_bytes / 4;
  // Rows in turn within a stretch of words that stays in the first-level cache.
  constexpr std::int64_t kStretch = 64;
  for (std::int64_t begin = 0; begin < whole; begin += kStretch) {
    const std::int64_t end = std::min(whole, begin + kStretch);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::uint8_t* row = w.data + (tile * kPackRows + r) * row_bytes;
      for (std::int64_t i = begin; i < end; ++i) std::memcpy(out + (i * kPackRows + r) * 4, row + i * 4, 4);
    }
  }
  if (row_bytes % 4 == 0) return;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::uint8_t* row = w.data + (tile * kPackRows + r) * row_bytes;
    std::memcpy(out + (whole * kPackRows + r) * 4, row + whole * 4, zu(row_bytes - whole * 4));
  }
}

bool has_nan_code(const std::uint8_t* codes, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if ((codes[i] & 0x7f) == kE4m3Nan) return true;
  }
  return false;
}

void pack_scales(const Weight& w, std::int64_t tile, const Layout& l, std::uint8_t* out) {
  if (w.format == WeightFormat::kFp8) {
    const std::int64_t columns = up(w.k, w.scale_block);
    const std::uint8_t* row = w.scale + tile * kPackRows / w.scale_block * columns;
    const std::uint8_t* codes = w.packed + tile * l.blocks * l.block_bytes;
    for (std::int64_t b = 0; b < l.blocks; ++b) {
      const bool broken = has_nan_code(codes + b * l.block_bytes, l.block_bytes);
      out[tile * l.blocks + b] = broken ? kUe8m0Nan : row[b * kBlock / w.scale_block];
    }
  } else if (w.format == WeightFormat::kFp4) {
    for (std::int64_t b = 0; b < l.blocks; ++b) {
      for (std::int64_t r = 0; r < kPackRows; ++r) {
        const std::int64_t n = tile * kPackRows + r;
        out[(tile * l.blocks + b) * kPackRows + r] = n < w.n ? w.scale[n * l.blocks + b] : std::uint8_t{127};
      }
    }
  }
}

}  // namespace

std::size_t packed_size_bytes(const Weight& weight) {
  const Layout l = layout_of(weight);
  return kFront + l.code_bytes + l.scale_bytes;
}

Weight pack_weight(const Weight& weight, std::span<std::uint8_t> out, ThreadPool* threads) {
  const Layout l = layout_of(weight);
  DI_CHECK(weight.n > 0 && weight.k > 0 && weight.data != nullptr, "packing an empty weight");
  DI_CHECK(out.size() == kFront + l.code_bytes + l.scale_bytes, "packing into ", out.size(), " bytes");
  DI_CHECK(reinterpret_cast<std::uintptr_t>(out.data()) % kAlignment == 0, "packing into unaligned memory");
  DI_CHECK(weight.format != WeightFormat::kFp4 || weight.k % kBlock == 0, "FP4 with k = ", weight.k);
  DI_CHECK(
      weight.format != WeightFormat::kFp8 || (weight.scale_block > 0 && weight.scale_block % kBlock == 0),
      "FP8 with scales per ", weight.scale_block);
  Weight packed = weight;
  packed.packed = out.data() + kFront;
  packed.packed_scale = l.scale_bytes != 0 ? out.data() + kFront + l.code_bytes : nullptr;
  const auto pack = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t tile = begin; tile < end; ++tile) {
      pack_tile(weight, tile, l, out.data() + kFront + tile * l.blocks * l.block_bytes);
      if (l.scale_bytes != 0) pack_scales(packed, tile, l, out.data() + kFront + l.code_bytes);
    }
  };
  if (threads != nullptr) {
    threads->parallel_for(l.tiles, std::max<std::int64_t>(1, (1 << 16) / (l.blocks * l.block_bytes)), pack);
  } else {
    pack(0, l.tiles, 0);
  }
  return packed;
}

PackedMemory::PackedMemory(std::size_t size_bytes) : size_(size_bytes) {
  if (size_bytes == 0) return;
  void* memory =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  DI_CHECK(memory != MAP_FAILED, "no address space for ", size_bytes, " bytes of packed weights");
  data_ = static_cast<std::uint8_t*>(memory);
#ifdef MADV_HUGEPAGE
  static_cast<void>(madvise(memory, size_bytes, MADV_HUGEPAGE));
#endif
}

PackedMemory::~PackedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
}

PackedMemory::PackedMemory(PackedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

PackedMemory& PackedMemory::operator=(PackedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace deepinfer::cpu
