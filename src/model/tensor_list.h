// The tensors a checkpoint of a given configuration must have: names, element types and shapes. Derived from
// the configuration alone, so it also answers how large a model is before its weights are there (report.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/checkpoint.h"
#include "model/config.h"
#include "tensor/dtype.h"

namespace deepinfer {

/// What a tensor is for; reports group by it.
enum class TensorKind {
  kEmbedding,
  kHead,
  kAttention,     // projections, norms and sinks of attention
  kCompressor,    // pool entries
  kIndexer,       // index keys and queries
  kHyper,         // hyper-connection mixing
  kRouter,        // gate weights, biases and hash tables
  kRoutedExpert,  // experts of the backbone
  kSharedExpert,
  kEngramTable,  // hashed n-gram rows
  kEngram,       // the rest of the Engram layers
  kNorm,         // layer norms and the final norm
  kDraft,        // everything below mtp.
  kVision,       // picture tower, aligner and markers
};
inline constexpr int kTensorKindCount = 14;
/// "routed experts", "engram tables", ...
const char* tensor_kind_name(TensorKind kind);

struct ExpectedTensor {
  std::string name;
  TensorKind kind = TensorKind::kNorm;
  std::vector<DType> dtypes;  ///< accepted element types; the first is what published checkpoints use
  Shape shape;                ///< as stored: packed FP4 weights have half their columns
  bool optional = false;
  bool is_scale = false;    ///< block scales: bytes of another tensor, no parameters of their own
  bool packed_fp4 = false;  ///< two values an element
  int layer = -1;           ///< backbone layer, or -1

  std::int64_t parameters() const;  ///< values: 0 for scales, two an element for packed FP4
  std::int64_t bytes() const;       ///< with the first element type
};

/// Every tensor of a checkpoint, in file-name order of the network: embedding, layers, head, draft stages,
/// vision. Quantised linears are followed by their scales. FP8 tiles have quantization.block; routed experts
/// are packed FP4 when quantization.fp4_experts; block 0 means plain BF16 or F32 weights without scales.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);

/// One kCorrupt error that lists missing, mis-typed, mis-shaped and unknown tensors (at most 10 of each).
Status check_tensors(const Checkpoint& checkpoint, const std::vector<ExpectedTensor>& expected);

}  // namespace deepinfer
