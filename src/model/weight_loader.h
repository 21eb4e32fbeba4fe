// Turns named tensors of a checkpoint into what operators read: matrices (as stored, or packed once for the
// fast kernels) and fp32 vectors. Owns every copy it makes; the stored bytes stay in the checkpoint's
// mapping. Shapes and types were checked against the expected list before (model/tensor_list.h), so a missing
// tensor here is a broken invariant.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "kernels/cpu/pack.h"
#include "kernels/ops.h"
#include "model/config.h"

namespace deepinfer {

class WeightLoader {
 public:
  /// pack: repack matrices into tile order for the fast kernels (kernels/cpu/pack.h).
  WeightLoader(const Checkpoint& checkpoint, const ModelConfig& config, bool pack, const Exec& exec);

  bool has(const std::string& name) const { return checkpoint_.find(name) != nullptr; }
  /// `name`.weight with `name`.scale where the format needs one.
  Weight matrix(const std::string& name);
  /// Any float tensor as fp32.
  std::span<const float> vector(const std::string& name);
  /// A BF16 tensor's bits as stored (embeddings).
  std::span<const std::uint16_t> bf16(const std::string& name);
  /// An I64 or I32 tensor.
  std::span<const std::int64_t> i64(const std::string& name);
  /// Raw codes and scales of an Engram table, copied or left in the mapping, where rows are read when they
  /// are needed.
  std::span<const std::uint8_t> bytes(const std::string& name, bool copy);

  ExpertWeights expert(const std::string& prefix);
  /// Bytes of the copies made so far.
  std::int64_t owned_bytes() const { return owned_bytes_; }

 private:
  const TensorView& tensor(const std::string& name) const;
  std::uint8_t* allocate(std::size_t bytes);
  std::span<std::uint8_t> allocate_packed(std::size_t bytes);

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  bool pack_;
  Exec exec_;
  struct Free {
    void operator()(std::uint8_t* p) const;
  };
  std::deque<std::unique_ptr<std::uint8_t, Free>> owned_;
  std::deque<cpu::PackedMemory> packed_;  // large packed matrices
  std::int64_t owned_bytes_ = 0;
};

}  // namespace deepinfer
