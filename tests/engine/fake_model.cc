#include "engine/fake_model.h"

#include <algorithm>
#include <set>

namespace deepinfer {
namespace {

constexpr std::uint64_t kSeed = 0x243F6A8885A308D3;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a ^ (b * 0x9E3779B97F4A7C15);
  x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9;
  return x ^ (x >> 32);
}

std::uint64_t extend(std::uint64_t prefix, TokenId token) {
  return mix(prefix, static_cast<std::uint64_t>(token) + 1);
}

}  // namespace

FakeModel::FakeModel(Options options)
    : options_(options),
      ring_size_(options.window + kMaxRollbackRows),
      prefix_(static_cast<std::size_t>(options.blocks * kBlockTokens)),
      ring_(static_cast<std::size_t>(options.slots * ring_size_)) {
  config_.vocab_size = options.vocab;
  config_.eos = options.eos;
  config_.max_positions = 1 << 20;
}

void FakeModel::expect(bool condition, const std::string& what) {
  if (!condition && violations.size() < 20) violations.push_back(what);
}

Status FakeModel::forward(std::span<const Chunk> chunks) {
  ++forward_calls;
  outputs_.clear();
  if (on_forward) {
    const Status status = on_forward(chunks);
    if (!status) {  // a real model may have written some rows before it noticed
      for (std::size_t i = 0; i < chunks.size(); i += 2) run_chunk(chunks[i]);
      outputs_.clear();
      return status;
    }
  }
  expect(!chunks.empty(), "an empty step");
  std::set<SlotId> slots;
  std::set<BlockId> blocks;
  std::int64_t step_rows = 0;
  for (const Chunk& chunk : chunks) {
    expect(slots.insert(chunk.slot).second, "a slot appears twice");
    for (const BlockId block : chunk.blocks) expect(blocks.insert(block).second, "a block appears twice");
    step_rows += static_cast<std::int64_t>(chunk.tokens.size());
    run_chunk(chunk);
  }
  expect(step_rows <= options_.max_rows, "more rows than the model takes");
  rows += step_rows;
  most_rows = std::max(most_rows, step_rows);
  return {};
}

void FakeModel::run_chunk(const Chunk& chunk) {
  const auto prefix = [&](std::int64_t position) -> std::uint64_t& {
    const BlockId block = chunk.blocks[static_cast<std::size_t>(position / kBlockTokens)];
    return prefix_[static_cast<std::size_t>(block * kBlockTokens + position % kBlockTokens)];
  };
  const auto ring = [&](std::int64_t position) -> RingEntry& {
    return ring_[static_cast<std::size_t>(chunk.slot * ring_size_ + position % ring_size_)];
  };
  const std::int64_t count = static_cast<std::int64_t>(chunk.tokens.size());
  expect(chunk.slot >= 0 && chunk.slot < options_.slots, "no such slot");
  expect(count >= 1, "a chunk without rows");
  expect(static_cast<std::int64_t>(chunk.blocks.size()) * kBlockTokens >= chunk.start + count,
         "blocks do not cover the chunk");
  const std::int64_t back = std::min<std::int64_t>(3, chunk.start);
  expect(static_cast<std::int64_t>(chunk.history.size()) >= back, "too little history");
  if (chunk.start == 0) {  // a new owner: what the slot held is gone
    for (std::int64_t i = 0; i < ring_size_; ++i) ring(i) = {};
  } else {
    // The handed-over ids must be the ones the cache was made from.
    std::uint64_t hash = chunk.start > back ? prefix(chunk.start - back - 1) : kSeed;
    for (std::int64_t i = 0; i < back; ++i)
      hash = extend(hash, chunk.history[chunk.history.size() - static_cast<std::size_t>(back - i)]);
    expect(hash == prefix(chunk.start - 1), "history and cache disagree");
    for (std::int64_t p = std::max<std::int64_t>(0, chunk.start - options_.window); p < chunk.start; ++p) {
      expect(ring(p).position == p && ring(p).hash == prefix(p), "the ring lost a row of the window");
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t p = chunk.start + i;
    const TokenId token = chunk.tokens[static_cast<std::size_t>(i)];
    expect(token >= 0 && token < options_.vocab, "a token outside the vocabulary");
    const std::uint64_t before = p == 0 ? kSeed : prefix(p - 1);
    const std::uint64_t now = extend(before, token);
    prefix(p) = now;
    ring(p) = {p, now};
    if (i < chunk.logits_from) continue;
    const std::int64_t oldest = std::max<std::int64_t>(0, p - options_.window + 1);
    outputs_.push_back(mix(mix(now, ring(oldest).hash), mix(prefix(p / 2), prefix(p / 3))));
  }
}

Status FakeModel::logits(std::int64_t first, std::int64_t count, std::span<float> out) {
  if (on_logits) DI_TRY(on_logits());
  most_logits = std::max(most_logits, count);
  expect(first >= 0 && count >= 1 && first + count <= output_rows(), "output rows out of range");
  const std::size_t vocab = static_cast<std::size_t>(options_.vocab);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t state = outputs_[static_cast<std::size_t>(first + i)];
    const std::span<float> row = out.subspan(static_cast<std::size_t>(i) * vocab, vocab);
    fill(state, row);
    if (on_row) on_row(state, row);
  }
  return {};
}

void FakeModel::fill(std::uint64_t state, std::span<float> row) const {
  for (std::size_t v = 0; v < row.size(); ++v) {
    row[v] = static_cast<float>(mix(state, v) >> 44) * (12.0f / 1048576.0f) - 6.0f;
  }
  row[static_cast<std::size_t>(options_.eos)] += options_.eos_bias;
}

std::vector<float> FakeModel::oracle(std::span<const TokenId> tokens) const {
  std::vector<std::uint64_t> prefix;
  for (const TokenId token : tokens) prefix.push_back(extend(prefix.empty() ? kSeed : prefix.back(), token));
  const std::size_t p = prefix.size() - 1;
  const std::size_t window = static_cast<std::size_t>(options_.window);
  const std::size_t oldest = p + 1 > window ? p + 1 - window : 0;
  std::vector<float> row(static_cast<std::size_t>(options_.vocab));
  fill(mix(mix(prefix[p], prefix[oldest]), mix(prefix[p / 2], prefix[p / 3])), row);
  return row;
}

}  // namespace deepinfer
