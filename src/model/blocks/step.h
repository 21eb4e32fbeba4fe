// One forward pass in flight: what runs it, its rows, and where an observer may look. Shared by the blocks.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/ops.h"
#include "model/config.h"
#include "model/model.h"
#include "model/numerics.h"

namespace deepinfer {

/// Sees intermediate values of a forward pass (tests, tools). layer -1: outside the layers.
class Observer {
 public:
  virtual ~Observer() = default;
  /// values [rows, width]; valid during the call only.
  virtual void value(std::string_view name, std::int64_t layer, const float* values, std::int64_t rows,
                     std::int64_t width) = 0;
  virtual void ids(std::string_view name, std::int64_t layer, const std::int32_t* values, std::int64_t rows,
                   std::int64_t width) = 0;
};

/// The rows of a step in the operators' terms; keeps the arrays StepRows points into.
class StepBuilder {
 public:
  void build(std::span<const Chunk> chunks);
  const StepRows& rows() const { return step_; }
  std::span<const std::int32_t> ids() const { return ids_; }

 private:
  StepRows step_;
  std::vector<StepRows::Sequence> sequences_;
  std::vector<std::int64_t> position_;
  std::vector<std::int32_t> sequence_;
  std::vector<std::int32_t> ids_;
};

/// What every block of a running step needs.
struct BlockContext {
  const ModelConfig& config;
  const Numerics& numerics;
  const OpTable& ops;
  const Exec& exec;
  const StepRows& step;
  std::span<const std::int32_t> ids;
  Observer* observer = nullptr;

  std::int64_t rows() const { return step.rows; }
  Round round() const { return numerics.round(); }
  void observe(std::string_view name, std::int64_t layer, const float* values, std::int64_t width) const {
    if (observer) observer->value(name, layer, values, step.rows, width);
  }
};

/// Groups of `ratio` positions that this step finishes, over all sequences.
std::int64_t finished_groups(const StepRows& step, std::int64_t ratio);

/// The input of quantised linears: x itself, or its FP8 round trip in `buffer` when the numerics ask for it.
const float* quantized_input(const BlockContext& c, const float* x, std::int64_t width, float* buffer);

}  // namespace deepinfer
