// Any bytes as a safetensors file: an error, or tensors whose bytes can all be read.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int fd = ::memfd_create("fuzz", 0);
  DI_CHECK(fd >= 0 && ::ftruncate(fd, 0) == 0);
  DI_CHECK(::pwrite(fd, data, size, 0) == static_cast<ssize_t>(size));
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  for (const bool gaps : {false, true}) {
    const auto file = deepinfer::SafetensorsFile::open(path, {.allow_gaps = gaps});
    if (!file.ok()) {
      DI_CHECK(!file.error().message.empty());
      continue;
    }
    std::uint64_t total = 0;
    unsigned sum = 0;
    for (const auto& [name, tensor] : file->tensors()) {
      DI_CHECK(file->find(name) == &tensor || file->find(name) != nullptr);
      DI_CHECK(deepinfer::element_count(tensor.shape) == tensor.elements(), name);
      for (const std::byte b : tensor.data) sum += static_cast<unsigned>(b);
      total += tensor.data.size();
      const auto values = deepinfer::to_f32(tensor);
      DI_CHECK(!values.ok() || static_cast<std::int64_t>(values->size()) == tensor.elements());
    }
    DI_CHECK(total <= size && (gaps || total + file->header_bytes().size() == size), "sum ", sum);
  }
  return 0;
}
