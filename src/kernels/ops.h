// Every operator of the networks, as a descriptor (what to compute, with shapes) and a table of functions
// (who computes it). A back end fills the table (kernels/registry.h); the model's forward pass calls through
// it and never knows which one runs. Formulas: docs/design/kernels.md, in the order of this file.
//
// Conventions. All matrices are row-major; activations are fp32 in memory. Where the numerics ask for bf16
// activations (`Round::kBf16`) the values are rounded to bf16 but still stored as fp32. T = rows of this
// step. A row's result depends on that row (and its sequence's cache) only, and every sum has one fixed
// order:
//   linear operators: for each block of 32 inputs t = fma(x_k, w_k, t) in order of k from 0; acc = fma(t,
//   scale, acc); row sums and dot products: 16 interleaved partial sums (element i goes to partial i mod 16,
//   by fma for products), then the partials are added as a binary tree: 8 apart, 4 apart, 2 apart, 1 apart.
// Spans belong to the caller; functions return when the result is there (CPU) or enqueued (devices).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cache_format.h"
#include "kernels/weight.h"

namespace deepinfer {

class ThreadPool;

/// Rounding of an operator's output.
enum class Round { kNone, kBf16 };

/// What an operator runs on.
struct Exec {
  ThreadPool* threads = nullptr;
};

/// The rows of one step: which sequence each belongs to and where it stands.
struct StepRows {
  struct Sequence {
    std::int64_t row_begin = 0;  ///< its rows are [row_begin, row_begin + row_count)
    std::int64_t row_count = 0;
    std::int64_t start = 0;  ///< absolute position of its first row
    std::int64_t slot = 0;
    const std::int32_t* blocks = nullptr;  ///< cache block of position p: blocks[p / 256]
  };
  std::int64_t rows = 0;
  std::span<const Sequence> sequences;
  std::span<const std::int64_t> position;  ///< [T]
  std::span<const std::int32_t> sequence;  ///< [T], index into `sequences`
};

/// y[T,N] = round(x[T,K] · Wᵀ). x_stride, y_stride: floats between rows.
struct LinearOp {
  const float* x;
  std::int64_t x_stride;
  Weight w;
  float* y;
  std::int64_t y_stride;
  std::int64_t rows;
  Round round;
};

/// In place or not: y = round(x * rsqrt(mean(x²) + eps) * weight); weight [width] or null. rows x groups
/// vectors, group g of row t at x + t*stride + g*width, the same in y.
struct RmsNormOp {
  const float* x;
  float* y;
  std::int64_t stride;
  std::int64_t rows;
  std::int64_t groups;
  std::int64_t width;
  const float* weight;
  float eps;
  Round round;
};

/// Rotates the last 2*half_dim channels of each of `heads` vectors of width `dim` per row, pairs (2i, 2i+1),
/// by the row's angles, backwards if `inverse`. In place. The angles' cosines and sines are tabulated once a
/// step (kernels/rope_table.h).
struct RopeOp {
  float* x;
  std::int64_t rows;
  std::int64_t heads;
  std::int64_t dim;
  const float* rotation;  ///< [rows, half_dim, 2]: cos, sin
  std::int64_t half_dim;
  bool inverse;
  Round round;
};

/// FP8 activation quantisation and back: y = e4m3(x / s) * s per `block` channels, s =
/// 2^ceil(log2(max(amax,1e-4)/448)).
struct QuantizeOp {
  const float* x;
  float* y;
  std::int64_t rows;
  std::int64_t width;
  std::int64_t block;
};

/// y[n-dim] = embedding rows, written to all m streams: X[T,m,D]. weight bf16 [V,D].
struct EmbedOp {
  const std::int32_t* ids;  ///< [rows]
  const std::uint16_t* weight;
  float* x;
  std::int64_t rows;
  std::int64_t streams;
  std::int64_t dim;
};

/// Hyper-connection mixes of one sub-layer (m = 4 streams). fn [24, 4D] fp32, scale [3], base [24].
/// x = flatten(X); z = (fn · x) * rsqrt(mean(x²) + norm_eps); pre = sigmoid(z[0:4]*scale0 + base) + eps;
/// post = 2 sigmoid(z[4:8]*scale1 + base); comb [j][k] = Sinkhorn(softmax_k(z[8+4j+k]*scale2 + base)).
struct HyperMixOp {
  const float* x;  ///< [T, 4, D]
  const float* fn;
  const float* scale;
  const float* base;
  float* pre;   ///< [T, 4]
  float* post;  ///< [T, 4]
  float* comb;  ///< [T, 4, 4]
  std::int64_t rows;
  std::int64_t dim;
  float norm_eps;
  float eps;
  std::int32_t iterations;
};

/// The final mix of V4: pre only. fn [4, 4D], scale [1], base [4].
struct HyperHeadOp {
  const float* x;
  const float* fn;
  const float* scale;
  const float* base;
  float* pre;
  std::int64_t rows;
  std::int64_t dim;
  float norm_eps;
  float eps;
};

/// u[T,D] = round(Σ_j pre[j] * X[j]).
struct HyperCollapseOp {
  const float* x;
  const float* pre;
  float* u;
  std::int64_t rows;
  std::int64_t dim;
  Round round;
};

/// X_k = round(post[k]*o + Σ_j comb[j][k]*X_j), in place.
struct HyperExpandOp {
  const float* o;  ///< [T, D]
  const float* post;
  const float* comb;
  float* x;
  std::int64_t rows;
  std::int64_t dim;
  Round round;
};

/// Window cache of one layer: per slot a ring of `ring` records; position p lies in record p % ring.
struct WindowCache {
  std::uint8_t* data = nullptr;  ///< slot s starts at data + s*slot_stride
  std::int64_t slot_stride = 0;
  std::int64_t ring = 0;
  RecordFormat format;
};

/// One history pool: per block 256/ratio records of one entry (a group of `ratio` positions).
struct PoolCache {
  std::uint8_t* data = nullptr;  ///< block b starts at data + b*block_stride
  std::int64_t block_stride = 0;
  std::int64_t ratio = 1;
  RecordFormat format;
  /// Address of entry e (group e) of a sequence.
  std::uint8_t* entry(const std::int32_t* blocks, std::int64_t e) const {
    const std::int64_t per_block = 256 / ratio;
    return data + blocks[e / per_block] * block_stride + (e % per_block) * format.bytes;
  }
};

/// Rounds kv [T, dim] through the cache format in place, so that fresh and cached keys are the same numbers.
struct CacheRoundOp {
  float* x;
  std::int64_t rows;
  RecordFormat format;
};

/// Writes the newest `ring` rows of every sequence's kv [T, dim] (already rounded) into its window ring.
struct WindowWriteOp {
  const float* kv;
  const StepRows* step;
  WindowCache window;
};

/// Compressor: turns (c, g) of `ratio` positions into one latent per finished group.
/// Plain (overlap = false): entry = Σ_t softmax_t(g_t) * c_t per channel over the group's positions; width =
/// dim. Overlapped (V4, ratio 4): c, g have 2*dim channels; A = [0,dim) of the previous group and B =
/// [dim,2dim) of this group form 2*ratio slots (group 0 has no A). g gets ape[position % ratio] added first
/// when ape is not null. ratio == 1: entry = c (no gate). Rows before this step are read from the tail ring,
/// new rows are appended to it.
struct CompressOp {
  const float* c;    ///< [T, width], width = dim * (overlap ? 2 : 1)
  const float* g;    ///< [T, width]; null when ratio == 1
  const float* ape;  ///< [ratio, width] or null
  std::int64_t ratio;
  std::int64_t dim;
  bool overlap;
  const StepRows* step;
  float* tail;  ///< slot s, position p: c at tail + s*slot_stride + (p % ring)*2*width, g behind it; null
                ///< when ratio == 1
  std::int64_t tail_slot_stride;  ///< floats
  std::int64_t tail_ring;
  float* out;  ///< [entries, dim] latents of the groups finished in this step, sequence by sequence
  std::int64_t* out_position;  ///< [entries] position of the group's first token
  std::int32_t* out_sequence;  ///< [entries]
  std::int64_t entries;        ///< how many there are (known beforehand: see finished_groups())
  Round round;                 ///< of the latent
};

/// Appends rows [entries, dim] to a pool through its format (rounding); entry index = position / ratio.
struct PoolWriteOp {
  const float* x;
  const std::int64_t* position;
  const std::int32_t* sequence;
  std::int64_t entries;
  const StepRows* step;
  PoolCache pool;
};

/// Normalised Walsh-Hadamard transform of each vector of `dim` channels (a power of two), in place (V4
/// indexer).
struct HadamardOp {
  float* x;
  std::int64_t rows;
  std::int64_t heads;
  std::int64_t dim;
  Round round;
};

/// Index scores and selection. score[s][j] = Σ_h weight[s][h] * relu(q[s][h] · key_j), j <
/// (position+1)/ratio. Candidate blocks (two-level top-k): with `candidates_out` the best `candidate_blocks`
/// blocks of `candidate_block` entries (by their largest score; the block of the newest visible entry always)
/// are listed; with `candidates_in` only their entries compete. A count of -1 stands for "all". Selected
/// entries are the `top_k` best, ties to the lower index, listed in ascending order.
struct IndexSelectOp {
  const float* q;       ///< [T, heads, dim], already rounded
  const float* weight;  ///< [T, heads]
  std::int64_t heads;
  std::int64_t dim;
  const StepRows* step;
  PoolCache keys;
  std::int64_t top_k;
  std::int32_t* selected;        ///< [T, top_k]
  std::int32_t* selected_count;  ///< [T]
  std::int64_t candidate_block;
  std::int64_t candidate_blocks;
  std::int32_t* candidates_out;        ///< [T, candidate_blocks] or null
  std::int32_t* candidates_out_count;  ///< [T]
  const std::int32_t* candidates_in;
  const std::int32_t* candidates_in_count;
};

/// Attention with a sink over window ∪ selected entries; keys and values are the same vectors.
/// logit = q·k * scale; o = Σ e^(logit-M) k / (Σ e^(logit-M) + e^(sink-M)), M = max of the logits.
/// Keys of a row in this order: window positions max(0, p-window+1)..p ascending, then selected entries
/// ascending. They are taken in blocks of kAttentionBlock, history starting a new block, with a running
/// maximum from -1e30: per block top' = max(top, logits), w = e^(logit-top'), sum = sum * e^(top-top') + Σ w,
/// o = o * e^(top-top') (product), then o = fma(w, k, o) key by key. After the last block o / (sum +
/// e^(sink-top)). Window positions >= the sequence's start are read from `fresh`, older ones from the ring.
inline constexpr std::int64_t kAttentionBlock = 64;
struct AttentionOp {
  const float* q;  ///< [T, heads, dim]
  float* o;        ///< [T, heads, dim]
  std::int64_t heads;
  std::int64_t dim;
  float scale;
  const float* sink;  ///< [heads]
  const StepRows* step;
  std::int64_t window;
  const float* fresh;  ///< [T, dim]
  WindowCache ring;
  PoolCache pool;                      ///< data null: window only
  const std::int32_t* selected;        ///< [T, top_k]; null with a pool: every visible entry
  const std::int32_t* selected_count;  ///< [T]
  std::int64_t top_k;
  Round round;  ///< kBf16: probabilities are rounded to bf16 before they weigh the values, and the output is
                ///< rounded
};

/// y[T, groups*n] : y_g = round(W_g · x_g), x [T, groups*k]; W stored [groups*n, k], weights rounded to bf16
/// (kFp8: after scaling) when `round` is kBf16.
struct GroupedLinearOp {
  const float* x;
  Weight w;
  std::int64_t groups;
  float* y;
  std::int64_t rows;
  Round round;
};

/// Router. score = sqrt(softplus(logit / temperature)); chosen = top_k of score + bias (ties to the lower
/// expert); weight = score / (Σ score + epsilon) * scale. Experts are listed in ascending order. Rows with
/// image[t] != 0 use bias_image. fixed != null (hash layers): chosen = fixed[token id], no bias.
struct RouteOp {
  const float* logits;  ///< [T, experts]
  const float* bias;    ///< [experts] or null
  const float* bias_image;
  const std::uint8_t* image;  ///< [T] or null
  const std::int64_t* fixed;  ///< [vocab, top_k] or null
  const std::int32_t* ids;    ///< [T], used with `fixed`
  std::int64_t rows;
  std::int64_t experts;
  std::int64_t top_k;
  float temperature;
  float scale;
  float epsilon;
  std::int32_t* chosen;  ///< [T, top_k]
  float* weight;         ///< [T, top_k]
};

/// One gated feed-forward unit: w1 (gate), w3 (up) [I, D], w2 (down) [D, I].
struct ExpertWeights {
  Weight w1, w3, w2;
};

/// Routed experts plus the shared one:
/// g = min(w1·x, limit), p = clamp(w3·x, ±limit), a = silu(g) * p [* weight of the route], y = w2·a;
/// out = round(Σ over chosen experts in ascending order + shared), sums in fp32.
/// quantize_block > 0: a is rounded to bf16 and FP8-quantised per that many channels before w2.
struct ExpertsOp {
  const float*
      x;  ///< [T, D], what the routed and shared experts read (already quantised when the mode asks for it)
  std::span<const ExpertWeights> experts;
  const ExpertWeights* shared;
  const std::int32_t* chosen;  ///< [T, top_k] ascending
  const float* weight;         ///< [T, top_k]
  std::int64_t rows;
  std::int64_t top_k;
  std::int64_t dim;
  std::int64_t inner;
  float limit;
  std::int64_t quantize_block;
  float* out;  ///< [T, D]
  Round round;
};

/// Engram rows: out[t] = concat over the row ids of t of table[id] (fp8 e4m3 with a ue8m0 multiplier per 32
/// channels).
struct EngramGatherOp {
  const std::int64_t* row_ids;  ///< [T, count]
  std::int64_t count;
  const std::uint8_t* table;  ///< [table_rows, width]
  const std::uint8_t* scale;  ///< [table_rows, width/32]
  std::int64_t width;
  std::int64_t rows;
  float* out;  ///< [T, count*width]
};

/// Engram gate: for stream j: dot = Σ_D x_j * qk_weight_j * key_j * rsqrt(mean x_j² + eps) * rsqrt(mean
/// key_j² + eps) * D^-1/2; gate = sigmoid(copysign(sqrt(max(|dot|, 1e-6)), dot)), 0 for image rows; X_j =
/// round(x_j + gate*value).
struct EngramGateOp {
  float* x;                   ///< [T, 4, D], in place
  const float* kv;            ///< [T, 5*D]: keys of the four streams, then the value
  const float* qk_weight;     ///< [4, D], product of the two stored norm weights
  const std::uint8_t* image;  ///< [T] or null
  std::int64_t rows;
  std::int64_t dim;
  float eps;
  Round round;
};

/// The functions of one back end. Every entry is set: a back end without a fast version of an operator points
/// to the reference (kernels/registry.h).
struct OpTable {
  void (*linear)(const Exec&, const LinearOp&);
  void (*grouped_linear)(const Exec&, const GroupedLinearOp&);
  void (*rms_norm)(const Exec&, const RmsNormOp&);
  void (*rope)(const Exec&, const RopeOp&);
  void (*quantize)(const Exec&, const QuantizeOp&);
  void (*embed)(const Exec&, const EmbedOp&);
  void (*hyper_mix)(const Exec&, const HyperMixOp&);
  void (*hyper_head)(const Exec&, const HyperHeadOp&);
  void (*hyper_collapse)(const Exec&, const HyperCollapseOp&);
  void (*hyper_expand)(const Exec&, const HyperExpandOp&);
  void (*cache_round)(const Exec&, const CacheRoundOp&);
  void (*window_write)(const Exec&, const WindowWriteOp&);
  void (*compress)(const Exec&, const CompressOp&);
  void (*pool_write)(const Exec&, const PoolWriteOp&);
  void (*hadamard)(const Exec&, const HadamardOp&);
  void (*index_select)(const Exec&, const IndexSelectOp&);
  void (*attention)(const Exec&, const AttentionOp&);
  void (*route)(const Exec&, const RouteOp&);
  void (*experts)(const Exec&, const ExpertsOp&);
  void (*engram_gather)(const Exec&, const EngramGatherOp&);
  void (*engram_gate)(const Exec&, const EngramGateOp&);
};

}  // namespace deepinfer
