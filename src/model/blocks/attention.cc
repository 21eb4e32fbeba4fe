#include "model/blocks/attention.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/rope_table.h"
#include "tensor/float_formats.h"

namespace deepinfer {
namespace {

std::size_t zu(std::int64_t v) {
  return static_cast<std::size_t>(v);
}

void norm(const BlockContext& c, float* x, std::int64_t rows, std::int64_t groups, std::int64_t width,
          std::span<const float> weight) {
  c.ops.rms_norm(c.exec, {x, x, groups * width, rows, groups, width, weight.empty() ? nullptr : weight.data(),
                          static_cast<float>(c.config.norm_eps), c.round()});
}

void rotate(const BlockContext& c, float* x, std::int64_t rows, std::int64_t heads, std::int64_t dim,
            const std::vector<float>& rotation, bool inverse) {
  c.ops.rope(c.exec, {x, rows, heads, dim, rotation.data(), c.config.rope_dim / 2, inverse, c.round()});
}

struct Compressed {
  std::int64_t entries;
  const float* latent;  // [entries, dim], normed, before RoPE
};

// Runs one compressor over the step: fills s.entry_position/sequence and `out` with normed latents.
Compressed run_compressor(const BlockContext& c, const LayerPlan& plan, const CompressorWeights& w,
                          float* tail, std::int64_t tail_stride, std::int64_t tail_rows, std::int64_t dim,
                          const float* u, AttentionScratch& s, std::vector<float>& out) {
  const std::int64_t hidden = c.config.hidden;
  const std::int64_t width = w.wkv.n;
  const bool gated = w.wgate.n > 0;
  // Gated compressors work in fp32; without a gate the projection is an ordinary linear.
  c.ops.linear(c.exec, {u, hidden, w.wkv, s.c.data(), width, c.rows(), gated ? Round::kNone : c.round()});
  if (gated) c.ops.linear(c.exec, {u, hidden, w.wgate, s.g.data(), width, c.rows(), Round::kNone});
  const std::int64_t entries = finished_groups(c.step, plan.ratio);
  c.ops.compress(c.exec, {.c = s.c.data(),
                          .g = gated ? s.g.data() : nullptr,
                          .ape = w.ape.empty() ? nullptr : w.ape.data(),
                          .ratio = plan.ratio,
                          .dim = dim,
                          .overlap = plan.overlap,
                          .step = &c.step,
                          .tail = tail,
                          .tail_slot_stride = tail_stride,
                          .tail_ring = tail_rows,
                          .out = out.data(),
                          .out_position = s.entry_position.data(),
                          .out_sequence = s.entry_sequence.data(),
                          .entries = entries,
                          .round = c.round()});
  norm(c, out.data(), entries, 1, dim, w.norm);
  return {entries, out.data()};
}

// Appends this step's finished groups of a pool owner to its pool and index keys.
void append_history(const BlockContext& c, std::int64_t layer, const AttentionWeights& w,
                    const CacheStorage& cache, std::size_t pool, std::span<const float> frequencies,
                    const float* u, AttentionScratch& s) {
  const ModelConfig& config = c.config;
  const LayerPlan& plan = config.plan[zu(layer)];
  const PoolLayout& layout = cache.layout().pools[pool];
  const Compressed main =
      run_compressor(c, plan, w.compressor, cache.tail(pool, false), cache.tail_slot_stride(pool, false),
                     layout.tail_rows, config.head_dim, u, s, s.entry);
  fill_rope_table({s.entry_position.data(), zu(main.entries)}, frequencies, s.entry_rotation.data());
  const auto write = [&](const float* x, const PoolCache& to) {
    c.ops.pool_write(c.exec,
                     {x, s.entry_position.data(), s.entry_sequence.data(), main.entries, &c.step, to});
  };
  if (layout.index_key.bytes > 0) {
    const std::int64_t dim = config.index_head_dim;
    float* key = s.index_entry.data();
    if (w.indexer.wk.n > 0) {
      c.ops.linear(c.exec, {main.latent, config.head_dim, w.indexer.wk, key, dim, main.entries, c.round()});
      norm(c, key, main.entries, 1, dim, w.indexer.k_norm);
    } else {
      run_compressor(c, plan, w.indexer.compressor, cache.tail(pool, true),
                     cache.tail_slot_stride(pool, true), layout.tail_rows, dim, u, s, s.index_entry);
    }
    rotate(c, key, main.entries, 1, dim, s.entry_rotation, false);
    if (config.family == Family::kDeepseekV4) c.ops.hadamard(c.exec, {key, main.entries, 1, dim, c.round()});
    write(key, cache.index_keys(pool));
  }
  rotate(c, s.entry.data(), main.entries, 1, config.head_dim, s.entry_rotation, false);
  write(s.entry.data(), cache.entries(pool));
}

// Chooses the history entries of every row; the result stays in s for the layers that reuse it.
void select_history(const BlockContext& c, std::int64_t layer, const AttentionWeights& w,
                    const CacheStorage& cache, std::size_t pool, const StepRotations& rotations,
                    const float* u, AttentionScratch& s) {
  const ModelConfig& config = c.config;
  const LayerPlan& plan = config.plan[zu(layer)];
  const std::int64_t heads = config.index_heads, dim = config.index_head_dim;
  c.ops.linear(c.exec, {s.quantized_latent.data(), config.q_rank, w.indexer.wq_b, s.index_q.data(),
                        heads * dim, c.rows(), c.round()});
  rotate(c, s.index_q.data(), c.rows(), heads, dim, rotations.compressed, false);
  if (config.family == Family::kDeepseekV4)
    c.ops.hadamard(c.exec, {s.index_q.data(), c.rows(), heads, dim, c.round()});
  c.ops.cache_round(c.exec, {s.index_q.data(), c.rows() * heads, cache.layout().pools[pool].index_key});
  c.ops.linear(c.exec,
               {u, config.hidden, w.indexer.weights_proj, s.index_weight.data(), heads, c.rows(), c.round()});
  const auto scale =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)) / std::sqrt(static_cast<double>(heads)));
  for (std::int64_t i = 0; i < c.rows() * heads; ++i) {
    float& weight = s.index_weight[zu(i)];
    weight = c.round() == Round::kBf16 ? round_to_bf16(weight * scale) : weight * scale;
  }
  const bool candidates = config.candidate_blocks > 0;
  c.ops.index_select(c.exec,
                     {.q = s.index_q.data(),
                      .weight = s.index_weight.data(),
                      .heads = heads,
                      .dim = dim,
                      .step = &c.step,
                      .keys = cache.index_keys(pool),
                      .top_k = config.index_top_k,
                      .selected = s.selected.data(),
                      .selected_count = s.selected_count.data(),
                      .candidate_block = config.candidate_block,
                      .candidate_blocks = config.candidate_blocks,
                      .candidates_out = candidates && plan.builds_candidates ? s.candidates.data() : nullptr,
                      .candidates_out_count = s.candidates_count.data(),
                      .candidates_in = candidates && plan.uses_candidates ? s.candidates.data() : nullptr,
                      .candidates_in_count = s.candidates_count.data()});
  if (c.observer) {
    c.observer->ids("selected", layer, s.selected.data(), c.rows(), config.index_top_k);
    c.observer->ids("selected_count", layer, s.selected_count.data(), c.rows(), 1);
  }
}

std::size_t pool_of(const CacheStorage& cache, std::int64_t owner) {
  const auto& pools = cache.layout().pools;
  const auto it =
      std::find_if(pools.begin(), pools.end(), [&](const PoolLayout& p) { return p.layer == owner; });
  DI_CHECK(it != pools.end(), "no pool of layer ", owner);
  return zu(it - pools.begin());
}

}  // namespace

CompressorWeights CompressorWeights::load(WeightLoader& loader, const std::string& prefix) {
  CompressorWeights w;
  w.wkv = loader.matrix(prefix + ".wkv");
  if (loader.has(prefix + ".wgate.weight")) w.wgate = loader.matrix(prefix + ".wgate");
  if (loader.has(prefix + ".ape")) w.ape = loader.vector(prefix + ".ape");
  w.norm = loader.vector(prefix + ".norm.weight");
  return w;
}

AttentionWeights AttentionWeights::load(WeightLoader& loader, const std::string& prefix) {
  AttentionWeights w;
  w.wq_a = loader.matrix(prefix + ".wq_a");
  w.wq_b = loader.matrix(prefix + ".wq_b");
  w.wkv = loader.matrix(prefix + ".wkv");
  w.wo_a = loader.matrix(prefix + ".wo_a");
  w.wo_b = loader.matrix(prefix + ".wo_b");
  w.q_norm = loader.vector(prefix + ".q_norm.weight");
  w.kv_norm = loader.vector(prefix + ".kv_norm.weight");
  w.sink = loader.vector(prefix + ".attn_sink");
  if (loader.has(prefix + ".compressor.wkv.weight")) {
    w.compressor = CompressorWeights::load(loader, prefix + ".compressor");
  }
  if (loader.has(prefix + ".indexer.wq_b.weight")) {
    w.indexer.wq_b = loader.matrix(prefix + ".indexer.wq_b");
    w.indexer.weights_proj = loader.matrix(prefix + ".indexer.weights_proj");
  }
  if (loader.has(prefix + ".indexer.wk.weight")) {
    w.indexer.wk = loader.matrix(prefix + ".indexer.wk");
    w.indexer.k_norm = loader.vector(prefix + ".indexer.k_norm.weight");
  }
  if (loader.has(prefix + ".indexer.compressor.wkv.weight")) {
    w.indexer.compressor = CompressorWeights::load(loader, prefix + ".indexer.compressor");
  }
  return w;
}

AttentionScratch::AttentionScratch(const ModelConfig& config, std::int64_t rows) {
  const std::int64_t q_width = config.heads * config.head_dim;
  const std::int64_t grouped_width = config.o_groups * config.o_rank;
  quantized.resize(zu(rows * config.hidden));
  latent_q.resize(zu(rows * config.q_rank));
  quantized_latent.resize(latent_q.size());
  q.resize(zu(rows * q_width));
  kv.resize(zu(rows * config.head_dim));
  o.resize(zu(rows * q_width));
  grouped.resize(zu(rows * grouped_width));
  quantized_grouped.resize(grouped.size());
  index_q.resize(zu(rows * config.index_heads * config.index_head_dim));
  index_weight.resize(zu(rows * config.index_heads));
  c.resize(zu(rows * 2 * std::max(config.head_dim, config.index_head_dim)));
  g.resize(c.size());
  entry.resize(zu(rows * config.head_dim));
  index_entry.resize(zu(rows * config.index_head_dim));
  entry_rotation.resize(zu(rows * config.rope_dim));
  entry_position.resize(zu(rows));
  entry_sequence.resize(zu(rows));
  selected.resize(zu(rows * config.index_top_k));
  selected_count.resize(zu(rows));
  candidates.resize(zu(rows * config.candidate_blocks));
  candidates_count.resize(zu(rows));
}

void run_attention(const BlockContext& c, std::int64_t layer, const AttentionWeights& w,
                   const CacheStorage& cache, const StepRotations& rotations,
                   std::span<const float> entry_frequencies, const float* u, AttentionScratch& s,
                   float* o_out) {
  const ModelConfig& config = c.config;
  const LayerPlan& plan = config.plan[zu(layer)];
  const std::vector<float>& rotation = plan.ratio > 0 ? rotations.compressed : rotations.plain;
  const std::int64_t q_width = config.heads * config.head_dim;

  const float* uq = quantized_input(c, u, config.hidden, s.quantized.data());
  c.ops.linear(c.exec, {uq, config.hidden, w.wq_a, s.latent_q.data(), config.q_rank, c.rows(), c.round()});
  norm(c, s.latent_q.data(), c.rows(), 1, config.q_rank, w.q_norm);
  const float* latent = quantized_input(c, s.latent_q.data(), config.q_rank, s.quantized_latent.data());
  if (latent != s.quantized_latent.data())
    std::copy_n(latent, c.rows() * config.q_rank, s.quantized_latent.data());
  c.ops.linear(c.exec,
               {s.quantized_latent.data(), config.q_rank, w.wq_b, s.q.data(), q_width, c.rows(), c.round()});
  if (config.family == Family::kDeepseekV4) norm(c, s.q.data(), c.rows(), config.heads, config.head_dim, {});
  rotate(c, s.q.data(), c.rows(), config.heads, config.head_dim, rotation, false);

  c.ops.linear(c.exec, {uq, config.hidden, w.wkv, s.kv.data(), config.head_dim, c.rows(), c.round()});
  norm(c, s.kv.data(), c.rows(), 1, config.head_dim, w.kv_norm);
  rotate(c, s.kv.data(), c.rows(), 1, config.head_dim, rotation, false);
  c.ops.cache_round(c.exec, {s.kv.data(), c.rows(), cache.layout().window});

  PoolCache pool;
  if (plan.ratio > 0) {
    const std::size_t index = pool_of(cache, plan.pool_layer);
    if (plan.owns_pool) append_history(c, layer, w, cache, index, entry_frequencies, u, s);
    if (plan.runs_index) select_history(c, layer, w, cache, index, rotations, u, s);
    pool = cache.entries(index);
  }
  const bool selects = plan.index_layer >= 0;
  c.ops.attention(c.exec, {.q = s.q.data(),
                           .o = s.o.data(),
                           .heads = config.heads,
                           .dim = config.head_dim,
                           .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim))),
                           .sink = w.sink.data(),
                           .step = &c.step,
                           .window = config.window,
                           .fresh = s.kv.data(),
                           .ring = cache.window(layer),
                           .pool = pool,
                           .selected = selects ? s.selected.data() : nullptr,
                           .selected_count = selects ? s.selected_count.data() : nullptr,
                           .top_k = config.index_top_k,
                           .round = c.round()});
  c.ops.window_write(c.exec, {s.kv.data(), &c.step, cache.window(layer)});

  rotate(c, s.o.data(), c.rows(), config.heads, config.head_dim, rotation, true);
  c.ops.grouped_linear(c.exec, {s.o.data(), w.wo_a, config.o_groups, s.grouped.data(), c.rows(), c.round()});
  const std::int64_t grouped_width = config.o_groups * config.o_rank;
  const float* grouped = quantized_input(c, s.grouped.data(), grouped_width, s.quantized_grouped.data());
  c.ops.linear(c.exec, {grouped, grouped_width, w.wo_b, o_out, config.hidden, c.rows(), c.round()});
}

}  // namespace deepinfer
