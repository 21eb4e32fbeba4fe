#include "model/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kernels/cpu/pack.h"

namespace deepinfer {
namespace {

constexpr std::int64_t kFloat = 4;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

bool backbone(TensorKind kind) {
  return kind != TensorKind::kEngramTable && kind != TensorKind::kDraft && kind != TensorKind::kVision;
}

/// What the loader keeps of a tensor: matrices packed for the kernels (with their scales), the embedding as
/// stored, small tensors as fp32 copies.
std::int64_t resident_bytes(const ExpectedTensor& t, const WeightQuantization& quantization) {
  constexpr std::int64_t kAlignment = 64;
  if (t.is_scale) return 0;
  const DType dtype = t.dtypes.front();
  if (t.kind == TensorKind::kEmbedding || dtype == DType::kI64) return t.bytes();
  const bool matrix = t.shape.size() == 2 && t.name.ends_with(".weight");
  if (!matrix) return ceil_div(element_count(t.shape).value_or(0) * kFloat, kAlignment) * kAlignment;
  Weight w;
  w.n = t.shape[0];
  w.k = t.packed_fp4 ? 2 * t.shape[1] : t.shape[1];
  w.format = t.packed_fp4              ? WeightFormat::kFp4
             : dtype == DType::kF8E4M3 ? WeightFormat::kFp8
                                       : WeightFormat::kBf16;
  w.scale_block = quantization.block;
  return static_cast<std::int64_t>(cpu::packed_size_bytes(w));
}

/// Names, shapes and look-up tables of a checkpoint's tensors.
constexpr std::int64_t kDirectoryBytesPerTensor = 448;

/// Everything but the weights.
struct RunBytes {
  std::int64_t history = 0, sequences = 0, workspace = 0;
  std::int64_t total() const { return history + sequences + workspace; }
};

RunBytes run_bytes(const ModelConfig& config, const CacheLayout& layout, const PlanRequest& request) {
  return {request.sequences * ceil_div(request.context, kBlockTokens) * layout.block_bytes(),
          request.sequences * layout.slot_bytes(), workspace_bytes(config, request)};
}

/// The largest x in [0, most] for which fits(x), which must be monotone; 0 counts as fitting.
template <class Fits>
std::int64_t largest(std::int64_t most, Fits fits) {
  std::int64_t low = 0, high = most + 1;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

ModelReport describe_model(const ModelConfig& config) {
  ModelReport report;
  std::array<KindTotals, kTensorKindCount> totals = {};
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    if (tensor.optional && !tensor.is_scale && tensor.kind == TensorKind::kVision)
      continue;  // read by nothing
    KindTotals& t = totals[static_cast<std::size_t>(tensor.kind)];
    t.kind = tensor.kind;
    ++t.tensors;
    t.parameters += tensor.parameters();
    t.bytes += tensor.bytes();
  }
  for (const KindTotals& t : totals) {
    if (t.tensors == 0) continue;
    report.kinds.push_back(t);
    report.tensors += t.tensors;
    report.parameters += t.parameters;
    report.bytes += t.bytes;
    if (backbone(t.kind)) report.backbone_parameters += t.parameters;
    if (t.kind == TensorKind::kEngramTable) report.engram_parameters = t.parameters;
    if (t.kind == TensorKind::kDraft) report.draft_parameters = t.parameters;
    if (t.kind == TensorKind::kVision) report.vision_parameters = t.parameters;
  }
  const std::int64_t routed = totals[static_cast<std::size_t>(TensorKind::kRoutedExpert)].parameters;
  report.active_parameters = report.backbone_parameters - routed +
                             routed / config.experts * config.experts_per_token -
                             totals[static_cast<std::size_t>(TensorKind::kEmbedding)].parameters;

  const CacheLayout layout = CacheLayout::of(config, Numerics::official());
  report.history_bytes_per_token = layout.bytes_per_token();
  report.window_bytes = layout.window_layers * layout.ring * layout.window.bytes;
  report.tail_bytes = layout.slot_bytes() - report.window_bytes;
  return report;
}

std::int64_t workspace_bytes(const ModelConfig& c, const PlanRequest& request) {
  const std::int64_t rows = request.rows, hidden = c.hidden, streams = c.streams;
  const std::int64_t q_width = c.heads * c.head_dim;
  const std::int64_t grouped = c.o_groups * c.o_rank;
  // Activations of the forward pass, floats (or 32-bit ids) a row.
  std::int64_t per_row = streams * hidden + 3 * hidden;  // streams, sub-layer input and output, final rows
  per_row += streams + 2 * streams * (2 + streams);      // mixing coefficients of both sub-layers
  per_row += 2 * c.rope_dim;                             // rotations
  per_row +=
      hidden + 2 * c.q_rank + 2 * q_width + 2 * grouped;  // attention: inputs, queries, outputs, groups
  per_row += 2 * c.head_dim + 4 * c.head_dim;             // keys, entries, compressor inputs
  per_row += c.index_heads * c.index_head_dim + c.index_heads + c.index_head_dim + c.rope_dim + 5;
  per_row += c.index_top_k + c.candidate_blocks + 2;  // selections
  per_row +=
      std::max(c.experts, c.draft.experts) + 2 * c.experts_per_token + hidden;  // router, expert inputs
  if (c.engram) {
    const std::int64_t ids = (c.engram->max_ngram - 1) * c.engram->heads;
    per_row += 2 * ids + 2 * ids * c.engram->head_dim + (streams + 1) * hidden;
  }
  // Kernel scratch of the calling thread: rows in packed order for the widest operator; the experts'
  // intermediate activations or the scores of an index, whichever is larger. Both are cut into portions of
  // these sizes.
  constexpr std::int64_t kPackedFloats = std::int64_t{1} << 24, kScoreFloats = std::int64_t{1} << 22;
  constexpr std::int64_t kBlockRows = 8;  // packed rows are filled up to whole register blocks
  const std::int64_t routed_rows = rows * (c.experts_per_token + c.shared_experts) +
                                   std::min(c.experts, rows * c.experts_per_token) * kBlockRows;
  const std::int64_t packed = std::min(std::max(rows * q_width, routed_rows * hidden), kPackedFloats);
  std::int64_t index_ratio = 0, dense_entries = 0;  // the finest indexed pool; entries read without an index
  for (const LayerPlan& plan : c.plan) {
    if (plan.runs_index) index_ratio = index_ratio == 0 ? plan.ratio : std::min(index_ratio, plan.ratio);
    if (plan.owns_pool && plan.index_layer < 0) dense_entries = request.context / plan.ratio;
  }
  const std::int64_t scores =
      index_ratio == 0 ? 0 : std::min(rows * (request.context / index_ratio), kScoreFloats);
  const std::int64_t gathered = std::max(std::min(routed_rows * c.expert_inner, kPackedFloats), scores);
  // Of each thread: a decoded weight panel with its outputs, decoded keys, logits of one row.
  constexpr std::int64_t kPanelFloats = std::int64_t{112} << 10;
  const std::int64_t keys = c.window + std::max(c.index_top_k, dense_entries);
  const std::int64_t per_thread = kPanelFloats + keys * (c.head_dim + c.heads);
  return kFloat * (rows * per_row + packed + gathered + request.threads * per_thread);
}

Result<MemoryPlan> plan_memory(const ModelConfig& config, const PlanRequest& request) {
  if (request.context < 1 || request.context > config.max_positions)
    return invalid_argument(fmt::format("a context of {} positions is outside 1..{}, the model's limit",
                                        request.context, config.max_positions),
                            "plan");
  if (request.sequences < 1 || request.rows < 1 || request.threads < 1)
    return invalid_argument("sequences, rows and threads must be at least 1", "plan");
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  if (request.sequences > kMost || request.rows > kMost)
    return invalid_argument(fmt::format("more than {} sequences or rows", kMost), "plan");

  MemoryPlan plan;
  plan.request = request;
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    plan.weight_bytes += kDirectoryBytesPerTensor;
    if (tensor.optional && tensor.kind == TensorKind::kVision) continue;
    if (tensor.kind == TensorKind::kDraft && !request.draft) continue;
    if (tensor.kind == TensorKind::kVision && !request.vision) continue;
    if (tensor.kind == TensorKind::kEngramTable)
      plan.mapped_bytes += tensor.bytes();
    else
      plan.weight_bytes += resident_bytes(tensor, config.quantization);
  }
  const CacheLayout layout = CacheLayout::of(config, request.numerics);
  const RunBytes run = run_bytes(config, layout, request);
  plan.history_bytes = run.history;
  plan.sequence_bytes = run.sequences;
  plan.workspace_bytes = run.workspace;
  plan.total_bytes = plan.weight_bytes + run.total();
  if (!request.memory_bytes) return plan;

  plan.fits = plan.total_bytes <= *request.memory_bytes;
  const std::int64_t room = *request.memory_bytes - plan.weight_bytes;
  PlanRequest trial = request;
  plan.largest_context = largest(config.max_positions, [&](std::int64_t context) {
    trial.context = context;
    return run_bytes(config, layout, trial).total() <= room;
  });
  trial = request;
  plan.largest_sequences = largest(kMost, [&](std::int64_t sequences) {
    trial.sequences = sequences;
    return run_bytes(config, layout, trial).total() <= room;
  });
  return plan;
}

}  // namespace deepinfer
