#include "model/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace deepinfer {
namespace {

constexpr std::int64_t kFloat = 4;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

bool backbone(TensorKind kind) {
  return kind != TensorKind::kEngramTable && kind != TensorKind::kDraft && kind != TensorKind::kVision;
}

/// Bytes of a plan whose sequences have `context` positions.
std::int64_t cache_bytes(const CacheLayout& layout, std::int64_t context, std::int64_t sequences) {
  return sequences * (ceil_div(context, kBlockTokens) * layout.block_bytes() + layout.slot_bytes());
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

std::int64_t workspace_bytes(const ModelConfig& c, std::int64_t rows, int threads) {
  const std::int64_t hidden = c.hidden, streams = c.streams;
  const std::int64_t q_width = c.heads * c.head_dim;
  const std::int64_t grouped = c.o_groups * c.o_rank;
  // Activations of the forward pass, floats (or 32-bit ids) a row.
  std::int64_t per_row = streams * hidden + 3 * hidden;  // streams, sub-layer input and output, final rows
  per_row += streams + 2 * streams * (2 + streams);      // mixing coefficients of both sub-layers
  per_row += 2 * c.rope_dim;                             // rotations
  per_row +=
      hidden + 2 * c.q_rank + 2 * q_width + 2 * grouped;  // attention: inputs, queries, outputs, groups
  per_row += 2 * c.head_dim + 4 * c.head_dim;             // keys, entries, compressor inputs
  per_row +=
      c.index_heads * c.index_head_dim + c.index_heads + c.index_head_dim + c.rope_dim + 5;  // index, entries
  per_row += c.index_top_k + c.candidate_blocks + 2;                                         // selections
  per_row +=
      std::max(c.experts, c.draft.experts) + 2 * c.experts_per_token + hidden;  // router, expert inputs
  if (c.engram) {
    const std::int64_t ids = (c.engram->max_ngram - 1) * c.engram->heads;
    per_row += 2 * ids + 2 * ids * c.engram->head_dim + (streams + 1) * hidden;
  }
  // Kernel scratch: rows in packed order for the widest operator, and the experts' intermediate activations.
  constexpr std::int64_t kPackedFloats = std::int64_t{1} << 24;
  const std::int64_t routed_rows = rows * (c.experts_per_token + c.shared_experts);
  const std::int64_t packed = std::min(std::max(rows * q_width, routed_rows * hidden), kPackedFloats);
  const std::int64_t gathered = std::min(routed_rows * c.expert_inner, kPackedFloats);
  constexpr std::int64_t kThreadBytes = std::int64_t{256} << 10;  // decoded panels and scores
  return kFloat * (rows * per_row + packed + gathered) + threads * kThreadBytes;
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
    if (tensor.optional && tensor.kind == TensorKind::kVision) continue;
    if (tensor.kind == TensorKind::kDraft && !request.draft) continue;
    if (tensor.kind == TensorKind::kVision && !request.vision) continue;
    (tensor.kind == TensorKind::kEngramTable ? plan.mapped_bytes : plan.weight_bytes) += tensor.bytes();
  }
  const CacheLayout layout = CacheLayout::of(config, request.numerics);
  plan.history_bytes = request.sequences * ceil_div(request.context, kBlockTokens) * layout.block_bytes();
  plan.sequence_bytes = request.sequences * layout.slot_bytes();
  plan.workspace_bytes = workspace_bytes(config, request.rows, request.threads);
  plan.total_bytes = plan.weight_bytes + plan.history_bytes + plan.sequence_bytes + plan.workspace_bytes;
  if (!request.memory_bytes) return plan;

  plan.fits = plan.total_bytes <= *request.memory_bytes;
  const std::int64_t room = *request.memory_bytes - plan.weight_bytes - plan.workspace_bytes;
  const std::int64_t each = room / request.sequences - layout.slot_bytes();
  if (each >= layout.block_bytes())
    plan.largest_context = layout.block_bytes() == 0
                               ? config.max_positions
                               : std::min(config.max_positions, each / layout.block_bytes() * kBlockTokens);
  plan.largest_sequences =
      std::max<std::int64_t>(0, room / std::max<std::int64_t>(1, cache_bytes(layout, request.context, 1)));
  return plan;
}

}  // namespace deepinfer
