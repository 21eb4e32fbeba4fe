#include "model/blocks/step.h"

namespace deepinfer {

void StepBuilder::build(std::span<const Chunk> chunks) {
  sequences_.clear();
  position_.clear();
  sequence_.clear();
  ids_.clear();
  for (const Chunk& chunk : chunks) {
    const auto index = static_cast<std::int32_t>(sequences_.size());
    const auto count = static_cast<std::int64_t>(chunk.tokens.size());
    sequences_.push_back({.row_begin = static_cast<std::int64_t>(position_.size()),
                          .row_count = count,
                          .start = chunk.start,
                          .slot = chunk.slot,
                          .blocks = chunk.blocks.data()});
    for (std::int64_t i = 0; i < count; ++i) {
      position_.push_back(chunk.start + i);
      sequence_.push_back(index);
    }
    ids_.insert(ids_.end(), chunk.tokens.begin(), chunk.tokens.end());
  }
  step_ = {.rows = static_cast<std::int64_t>(position_.size()),
           .sequences = sequences_,
           .position = position_,
           .sequence = sequence_};
}

std::int64_t finished_groups(const StepRows& step, std::int64_t ratio) {
  std::int64_t count = 0;
  for (const StepRows::Sequence& s : step.sequences)
    count += (s.start + s.row_count) / ratio - s.start / ratio;
  return count;
}

const float* quantized_input(const BlockContext& c, const float* x, std::int64_t width, float* buffer) {
  if (!c.numerics.quantize_activations || c.config.quantization.block == 0) return x;
  c.ops.quantize(c.exec, {x, buffer, c.rows(), width, c.config.quantization.block});
  return buffer;
}

}  // namespace deepinfer
