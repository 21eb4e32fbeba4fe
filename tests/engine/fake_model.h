// A Model that is a hash: the logits after a sequence are a pure function of its tokens, but they are worked
// out through the block table and the slot's ring, as a network would. A wrong block, slot, position or
// history changes the logits, and what can be noticed on the spot is counted in `violations`.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/model.h"

namespace deepinfer {

class FakeModel final : public Model {
 public:
  struct Options {
    std::int64_t vocab = 64, blocks = 16, slots = 4, max_rows = 64;
    std::int64_t window = 24;
    TokenId eos = 1;
    float eos_bias = 0;  ///< added to the end-of-sequence logit
  };
  explicit FakeModel(Options options);

  const ModelConfig& config() const override { return config_; }
  std::int64_t vocab_size() const override { return options_.vocab; }
  CacheSize cache_size() const override { return {options_.blocks, options_.slots, 4096, 512}; }
  std::int64_t max_rows() const override { return options_.max_rows; }
  Status forward(std::span<const Chunk> chunks) override;
  std::int64_t output_rows() const override { return static_cast<std::int64_t>(outputs_.size()); }
  Status logits(std::int64_t first, std::int64_t count, std::span<float> out) override;

  /// The logits after `tokens`, from the tokens alone.
  std::vector<float> oracle(std::span<const TokenId> tokens) const;

  /// Asked before each forward / logits call; an error makes the call fail, leaving half-written state
  /// behind.
  std::function<Status(std::span<const Chunk>)> on_forward;
  std::function<Status()> on_logits;
  /// May spoil a row of logits: (hash of the history, row).
  std::function<void(std::uint64_t, std::span<float>)> on_row;

  std::vector<std::string> violations;
  std::int64_t forward_calls = 0, rows = 0, most_rows = 0, most_logits = 0;

 private:
  struct RingEntry {
    std::int64_t position = -1;
    std::uint64_t hash = 0;
  };
  void run_chunk(const Chunk& chunk);
  void fill(std::uint64_t state, std::span<float> row) const;
  void expect(bool condition, const std::string& what);

  Options options_;
  ModelConfig config_;
  std::int64_t ring_size_;
  std::vector<std::uint64_t> prefix_;  // [block][position in block]: hash of all tokens up to there
  std::vector<RingEntry> ring_;        // [slot][position % ring_size]
  std::vector<std::uint64_t> outputs_;
};

}  // namespace deepinfer
