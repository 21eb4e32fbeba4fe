#include "kernels/cpu/workspace.h"

#include <array>
#include <new>

#include "kernels/cpu/pack.h"

namespace deepinfer::cpu {
namespace {

struct Area {
  void* data = nullptr;
  std::size_t size = 0;

  Area() = default;
  Area(const Area&) = delete;
  Area& operator=(const Area&) = delete;
  ~Area() { release(); }
  void release() {
    if (data != nullptr) ::operator delete (data, std::align_val_t{kAlignment});
    data = nullptr;
    size = 0;
  }
  void grow(std::size_t bytes) {
    release();
    const std::size_t rounded = bytes + bytes / 4;
    data = ::operator new (rounded, std::align_val_t{kAlignment});
    size = rounded;
  }
};

}  // namespace

void* scratch_bytes(Scratch purpose, std::size_t bytes) {
  thread_local std::array<Area, kScratchCount> areas;
  Area& area = areas[static_cast<std::size_t>(purpose)];
  if (area.size < bytes || area.data == nullptr) area.grow(bytes < kAlignment ? kAlignment : bytes);
  return area.data;
}

}  // namespace deepinfer::cpu
