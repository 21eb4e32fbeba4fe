#include "model/weight_loader.h"

#include <sys/mman.h>

#include <cstdlib>

#include "base/check.h"
#include "tensor/dtype.h"

namespace deepinfer {
namespace {

// Gives whole pages of a mapped tensor back to the page cache: after packing, nobody reads the stored form
// again, and it should not count as this process's memory beside the packed copy. Read again they would come
// from the file.
void release_pages(std::span<const std::byte> stored) {
  constexpr std::uintptr_t kPage = 4096;
  const auto begin = (reinterpret_cast<std::uintptr_t>(stored.data()) + kPage - 1) / kPage * kPage;
  const auto end = reinterpret_cast<std::uintptr_t>(stored.data() + stored.size()) / kPage * kPage;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

bool aligned(const void* p, std::size_t to) {
  return reinterpret_cast<std::uintptr_t>(p) % to == 0;
}

}  // namespace

WeightLoader::WeightLoader(const Checkpoint& checkpoint, const ModelConfig& config, bool pack,
                           const Exec& exec)
    : checkpoint_(checkpoint), config_(config), pack_(pack), exec_(exec) {}

void WeightLoader::Free::operator()(std::uint8_t* p) const {
  std::free(p);
}

std::uint8_t* WeightLoader::allocate(std::size_t bytes) {
  constexpr std::size_t kAlign = 64;
  const std::size_t rounded = (bytes + kAlign - 1) / kAlign * kAlign;
  auto* p = static_cast<std::uint8_t*>(std::aligned_alloc(kAlign, rounded));
  DI_CHECK(p != nullptr, "out of memory for ", bytes, " bytes of weights");
  owned_.emplace_back(p);
  owned_bytes_ += static_cast<std::int64_t>(rounded);
  return p;
}

std::span<std::uint8_t> WeightLoader::allocate_packed(std::size_t bytes) {
  // Whole mappings (and huge pages) pay off for large matrices only.
  constexpr std::size_t kOwnMapping = std::size_t{4} << 20;
  if (bytes < kOwnMapping) return {allocate(bytes), bytes};
  owned_bytes_ += static_cast<std::int64_t>(bytes);
  return packed_.emplace_back(bytes).bytes();
}

const TensorView& WeightLoader::tensor(const std::string& name) const {
  const TensorView* view = checkpoint_.find(name);
  DI_CHECK(view != nullptr, "no tensor ", name);
  return *view;
}

Weight WeightLoader::matrix(const std::string& name) {
  const TensorView& stored = tensor(name + ".weight");
  Weight w;
  w.n = stored.shape[0];
  w.k = stored.shape[1];
  std::size_t alignment = 1;
  switch (stored.dtype) {
    case DType::kF32:
      w.format = WeightFormat::kF32;
      alignment = 4;
      break;
    case DType::kBF16:
      w.format = WeightFormat::kBf16;
      alignment = 2;
      break;
    case DType::kF8E4M3:
      w.format = WeightFormat::kFp8;
      w.scale = tensor(name + ".scale").u8().data();
      w.scale_block = config_.quantization.block;
      break;
    case DType::kI8:
      w.format = WeightFormat::kFp4;
      w.k *= 2;
      w.scale = tensor(name + ".scale").u8().data();
      break;
    default:
      DI_CHECK(false, "matrix ", name, " of type ", dtype_name(stored.dtype));
  }
  w.data = reinterpret_cast<const std::uint8_t*>(stored.data.data());
  if (!aligned(w.data, alignment)) {
    std::uint8_t* copy = allocate(stored.data.size());
    std::memcpy(copy, stored.data.data(), stored.data.size());
    w.data = copy;
  }
  if (!pack_) return w;
  const Weight packed = cpu::pack_weight(w, allocate_packed(cpu::packed_size_bytes(w)), exec_.threads);
  release_pages(stored.data);
  return packed;
}

std::span<const float> WeightLoader::vector(const std::string& name) {
  Result<std::vector<float>> values = to_f32(tensor(name));
  DI_CHECK(values.ok(), name, ": ", values.ok() ? "" : values.error().to_string());
  auto* copy = reinterpret_cast<float*>(allocate(values->size() * sizeof(float)));
  std::copy(values->begin(), values->end(), copy);
  return {copy, values->size()};
}

std::span<const std::uint16_t> WeightLoader::bf16(const std::string& name) {
  const TensorView& stored = tensor(name);
  DI_CHECK(stored.dtype == DType::kBF16, name, " is not BF16");
  const auto count = static_cast<std::size_t>(stored.elements());
  if (aligned(stored.data.data(), 2)) {
    return {reinterpret_cast<const std::uint16_t*>(stored.data.data()), count};
  }
  auto* copy = reinterpret_cast<std::uint16_t*>(allocate(count * 2));
  std::memcpy(copy, stored.data.data(), count * 2);
  return {copy, count};
}

std::span<const std::int64_t> WeightLoader::i64(const std::string& name) {
  const TensorView& stored = tensor(name);
  const auto count = static_cast<std::size_t>(stored.elements());
  auto* copy = reinterpret_cast<std::int64_t*>(allocate(count * 8));
  if (stored.dtype == DType::kI64) {
    stored.copy_to<std::int64_t>(0, {copy, count});
  } else {
    DI_CHECK(stored.dtype == DType::kI32, name, " is neither I64 nor I32");
    std::vector<std::int32_t> narrow(count);
    stored.copy_to<std::int32_t>(0, narrow);
    std::copy(narrow.begin(), narrow.end(), copy);
  }
  return {copy, count};
}

std::span<const std::uint8_t> WeightLoader::bytes(const std::string& name, bool copy) {
  const std::span<const std::uint8_t> stored = tensor(name).u8();
  if (!copy) return stored;
  std::uint8_t* to = allocate(stored.size());
  std::copy(stored.begin(), stored.end(), to);
  return {to, stored.size()};
}

ExpertWeights WeightLoader::expert(const std::string& prefix) {
  return {matrix(prefix + ".w1"), matrix(prefix + ".w3"), matrix(prefix + ".w2")};
}

}  // namespace deepinfer
