// A step over several sequences with caches of random content, for tests of the operators that read them.
#pragma once

#include <numeric>
#include <random>

#include "kernels/ops.h"
#include "kernels/random_weights.h"

namespace deepinfer::test {

struct SequenceShape {
  std::int64_t start;  ///< positions before this step
  std::int64_t rows;
};

/// Rows, positions and scattered cache blocks of the given sequences. Not copyable: spans point into it.
class StepFixture {
 public:
  StepFixture(std::mt19937& rng, const std::vector<SequenceShape>& shapes) {
    std::int64_t block_count = 0;
    for (const SequenceShape& s : shapes) block_count += (s.start + s.rows + 255) / 256;
    std::vector<std::int32_t> free(zu(block_count));
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), rng);
    blocks_ = free;
    std::int64_t used = 0;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      StepRows::Sequence seq;
      seq.row_begin = static_cast<std::int64_t>(position_.size());
      seq.row_count = shapes[i].rows;
      seq.start = shapes[i].start;
      seq.slot = static_cast<std::int64_t>(shapes.size() - 1 - i);
      seq.blocks = blocks_.data() + used;
      used += (seq.start + seq.row_count + 255) / 256;
      sequences_.push_back(seq);
      for (std::int64_t r = 0; r < seq.row_count; ++r) {
        position_.push_back(seq.start + r);
        sequence_.push_back(static_cast<std::int32_t>(i));
      }
    }
    step.rows = static_cast<std::int64_t>(position_.size());
    step.sequences = sequences_;
    step.position = position_;
    step.sequence = sequence_;
  }
  StepFixture(const StepFixture&) = delete;
  StepFixture& operator=(const StepFixture&) = delete;

  std::int64_t block_count() const { return static_cast<std::int64_t>(blocks_.size()); }

  StepRows step;

 private:
  std::vector<StepRows::Sequence> sequences_;
  std::vector<std::int64_t> position_;
  std::vector<std::int32_t> sequence_;
  std::vector<std::int32_t> blocks_;
};

/// `count` records of random vectors.
inline std::vector<std::uint8_t> random_records(std::mt19937& rng, const RecordFormat& format,
                                                std::int64_t count) {
  std::vector<std::uint8_t> bytes(zu(count * format.bytes));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::vector<float> x = random_values(rng, format.dim);
    encode_record(format, x.data(), bytes.data() + i * format.bytes);
  }
  return bytes;
}

struct OwnedPool {
  OwnedPool(std::mt19937& rng, const RecordFormat& format, std::int64_t blocks, std::int64_t ratio)
      : bytes(random_records(rng, format, blocks * (256 / ratio))) {
    pool = {bytes.data(), 256 / ratio * format.bytes, ratio, format};
  }
  std::vector<std::uint8_t> bytes;
  PoolCache pool;
};

struct OwnedWindow {
  OwnedWindow(std::mt19937& rng, const RecordFormat& format, std::int64_t slots, std::int64_t ring)
      : bytes(random_records(rng, format, slots * ring)) {
    window = {bytes.data(), ring * format.bytes, ring, format};
  }
  std::vector<std::uint8_t> bytes;
  WindowCache window;
};

}  // namespace deepinfer::test
