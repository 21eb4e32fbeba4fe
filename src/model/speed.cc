#include "model/speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>

namespace deepinfer {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t blocks_for(std::int64_t positions) {
  return (positions + kBlockTokens - 1) / kBlockTokens;
}

// Sequences with consecutive blocks and random tokens, all of the same length at any time.
class Sequences {
 public:
  Sequences(Decoder& model, std::int64_t count, std::int64_t capacity, std::uint64_t seed)
      : model_(model), random_(seed) {
    const std::int64_t blocks = blocks_for(capacity);
    ids_.resize(static_cast<std::size_t>(count));
    tables_.resize(ids_.size());
    for (std::size_t s = 0; s < ids_.size(); ++s) {
      for (std::int64_t b = 0; b < blocks; ++b) {
        tables_[s].push_back(static_cast<BlockId>(static_cast<std::int64_t>(s) * blocks + b));
      }
    }
  }

  // Appends `rows` random tokens to every sequence from `first` to `last`, with the logits of the last row.
  Status step(std::size_t first, std::size_t last, std::int64_t rows) {
    std::vector<std::vector<TokenId>> tokens(last - first);
    std::vector<Chunk> chunks;
    for (std::size_t s = first; s < last; ++s) {
      std::vector<TokenId>& t = tokens[s - first];
      for (std::int64_t i = 0; i < rows; ++i)
        t.push_back(static_cast<TokenId>(random_() % static_cast<std::uint64_t>(model_.vocab_size())));
      chunks.push_back({.slot = static_cast<SlotId>(s),
                        .start = static_cast<std::int64_t>(ids_[s].size()),
                        .tokens = t,
                        .history = ids_[s],
                        .blocks = tables_[s],
                        .logits_from = rows - 1});
    }
    DI_TRY(model_.forward(chunks));
    logits_.resize(static_cast<std::size_t>(model_.output_rows() * model_.vocab_size()));
    DI_TRY(model_.logits(0, model_.output_rows(), logits_));
    for (std::size_t s = first; s < last; ++s)
      ids_[s].insert(ids_[s].end(), tokens[s - first].begin(), tokens[s - first].end());
    return {};
  }

  Status prefill(std::size_t sequence, std::int64_t length) {
    for (std::int64_t done = 0; done < length;) {
      const std::int64_t rows = std::min(length - done, model_.max_rows());
      DI_TRY(step(sequence, sequence + 1, rows));
      done += rows;
    }
    return {};
  }

  void forget(std::size_t sequence) { ids_[sequence].clear(); }

 private:
  Decoder& model_;
  std::mt19937_64 random_;
  std::vector<std::vector<TokenId>> ids_;
  std::vector<std::vector<BlockId>> tables_;
  std::vector<float> logits_;
};

template <class Run>
Status time_runs(int repetitions, SpeedResult& result, const Run& run) {
  std::vector<double> seconds;
  for (int i = 0; i <= repetitions; ++i) {  // the first run warms up
    const Clock::time_point begin = Clock::now();
    DI_TRY(run());
    if (i > 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::sort(seconds.begin(), seconds.end());
  result.seconds = seconds[seconds.size() / 2];
  result.fastest = seconds.front();
  result.slowest = seconds.back();
  return {};
}

}  // namespace

CacheSize speed_cache_size(const SpeedOptions& options) {
  std::int64_t blocks = 1, slots = 1;
  for (const std::int64_t length : options.prefill_lengths) blocks = std::max(blocks, blocks_for(length));
  for (const std::int64_t batch : options.batches) {
    blocks = std::max(blocks, batch * blocks_for(options.context + options.repetitions + 1));
    slots = std::max(slots, batch);
  }
  return {blocks, slots};
}

Result<std::vector<SpeedResult>> measure_speed(Decoder& model, const SpeedOptions& options,
                                               const std::function<void(const SpeedResult&)>& done) {
  const CacheSize need = speed_cache_size(options), have = model.cache_size();
  if (need.block_count > have.block_count || need.slot_count > have.slot_count) {
    return invalid_argument(
        fmt::format("the measurements need {} cache blocks and {} slots, the model has {} and {}",
                    need.block_count, need.slot_count, have.block_count, have.slot_count));
  }
  std::vector<SpeedResult> results;
  const auto finish = [&](SpeedResult result) {
    if (done) done(result);
    results.push_back(std::move(result));
  };
  for (const std::int64_t length : options.prefill_lengths) {
    SpeedResult result{.what = fmt::format("prefill {}", length), .rows = length};
    for (std::int64_t at = 0; at < length; at += model.max_rows()) {
      const std::int64_t rows = std::min(length - at, model.max_rows());
      const StepCost c = step_cost(model.config(), model.numerics(), rows, 1, at + rows / 2);
      result.cost.weight_bytes += c.weight_bytes;
      result.cost.cache_bytes += c.cache_bytes;
      result.cost.flops += c.flops;
    }
    Sequences sequences(model, 1, length, options.seed);
    DI_TRY(time_runs(options.repetitions, result, [&] {
      sequences.forget(0);
      return sequences.prefill(0, length);
    }));
    finish(std::move(result));
  }
  for (const std::int64_t batch : options.batches) {
    if (batch > model.max_rows()) {
      return invalid_argument(
          fmt::format("batch {} is larger than a step of {} rows", batch, model.max_rows()));
    }
    SpeedResult result{.what = fmt::format("decode batch {}", batch), .rows = batch};
    result.cost = step_cost(model.config(), model.numerics(), batch, batch, options.context);
    Sequences sequences(model, batch, options.context + options.repetitions + 1, options.seed);
    for (std::int64_t s = 0; s < batch; ++s)
      DI_TRY(sequences.prefill(static_cast<std::size_t>(s), options.context));
    DI_TRY(time_runs(options.repetitions, result,
                     [&] { return sequences.step(0, static_cast<std::size_t>(batch), 1); }));
    finish(std::move(result));
  }
  return results;
}

}  // namespace deepinfer
