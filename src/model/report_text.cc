#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "model/report.h"

namespace deepinfer {
namespace {

const char* family_name(Family family) {
  return family == Family::kDeepseekV41 ? "DeepSeek-V4.1" : "DeepSeek-V4";
}

std::string storage_name(const WeightQuantization& q) {
  if (q.block == 0) return "unquantised";
  return fmt::format("FP8 in {0}x{0} tiles, {1} experts", q.block, q.fp4_experts ? "FP4" : "FP8");
}

/// Layers in runs of the same kind: "0-1 window, 2-19 ratio 2, ...".
std::string layers_text(const ModelConfig& config) {
  std::string out;
  const auto label = [](const LayerPlan& p) {
    return p.ratio == 0 ? std::string("window") : fmt::format("1:{}", p.ratio);
  };
  std::vector<std::pair<std::string, int>> counts;
  for (const LayerPlan& p : config.plan) {
    const std::string name = label(p);
    auto at = std::find_if(counts.begin(), counts.end(), [&name](const auto& c) { return c.first == name; });
    if (at == counts.end()) at = counts.insert(counts.end(), {name, 0});
    ++at->second;
  }
  for (const auto& [name, count] : counts)
    out += fmt::format("{}{} x {}", out.empty() ? "" : ", ", count, name);
  return out;
}

}  // namespace

std::string size_text(double bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  if (unit == 0 && bytes == std::floor(bytes)) return fmt::format("{:.0f} bytes", bytes);
  return fmt::format("{:.2f} {}", bytes, kUnits[unit]);
}

std::string count_text(double count) {
  if (count >= 1e9) return fmt::format("{:.1f} B", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.1f} M", count / 1e6);
  if (count >= 1e3) return fmt::format("{:.1f} K", count / 1e3);
  return fmt::format("{:.0f}", count);
}

std::string report_text(const ModelConfig& c, const ModelReport& r) {
  std::string out;
  const auto line = [&out](std::string_view label, const std::string& value) {
    fmt::format_to(std::back_inserter(out), "{:<22} {}\n", label, value);
  };
  line("family", fmt::format("{} ({})", family_name(c.family), c.model_type));
  line("layers",
       fmt::format("{} ({}), hidden {}, {} streams", c.layers, layers_text(c), c.hidden, c.streams));
  line("attention", fmt::format("{} heads x {}, window {}, context up to {}", c.heads, c.head_dim, c.window,
                                c.max_positions));
  line("experts",
       fmt::format("{} of {} + {} shared, inner {}{}", c.experts_per_token, c.experts, c.shared_experts,
                   c.expert_inner,
                   c.hash_layers > 0 ? fmt::format(", first {} layers routed by token", c.hash_layers) : ""));
  line("vocabulary", fmt::format("{}", c.vocab_size));
  line("weights", storage_name(c.quantization));
  if (c.draft.stages > 0)
    line("draft module",
         c.draft.dspark ? fmt::format("DSpark, {} stages, blocks of {}", c.draft.stages, c.draft.block_size)
                        : fmt::format("next-token prediction, {} layers", c.draft.stages));
  if (c.vision)
    line("vision", fmt::format("{} layers x {}, up to {} tokens a picture", c.vision->layers,
                               c.vision->hidden, c.vision->max_image_tokens));
  out += '\n';
  fmt::format_to(std::back_inserter(out), "{:<22} {:>14} {:>14} {:>10}\n", "kind", "parameters", "bytes",
                 "tensors");
  const auto row = [&out](std::string_view name, std::int64_t parameters, std::int64_t bytes,
                          std::int64_t tensors) {
    fmt::format_to(std::back_inserter(out), "{:<22} {:>14} {:>14} {:>10}\n", name,
                   count_text(static_cast<double>(parameters)), size_text(static_cast<double>(bytes)),
                   tensors);
  };
  for (const KindTotals& t : r.kinds) row(tensor_kind_name(t.kind), t.parameters, t.bytes, t.tensors);
  row("total", r.parameters, r.bytes, r.tensors);
  out += '\n';
  line("backbone",
       fmt::format("{} parameters, {} active a token", count_text(static_cast<double>(r.backbone_parameters)),
                   count_text(static_cast<double>(r.active_parameters))));
  if (r.engram_parameters > 0)
    line("engram tables", fmt::format("{} parameters", count_text(static_cast<double>(r.engram_parameters))));
  line("cache", fmt::format("{:.0f} bytes a token, and {} a sequence (window {}, unfinished groups {})",
                            std::round(r.history_bytes_per_token),
                            size_text(static_cast<double>(r.window_bytes + r.tail_bytes)),
                            size_text(static_cast<double>(r.window_bytes)),
                            size_text(static_cast<double>(r.tail_bytes))));
  return out;
}

Json report_json(const ModelConfig& c, const ModelReport& r) {
  Json kinds = Json::array();
  for (const KindTotals& t : r.kinds) {
    Json kind;
    kind.set("kind", tensor_kind_name(t.kind))
        .set("tensors", t.tensors)
        .set("parameters", t.parameters)
        .set("bytes", t.bytes);
    kinds.push(std::move(kind));
  }
  Json out;
  out.set("family", family_name(c.family))
      .set("model_type", c.model_type)
      .set("layers", c.layers)
      .set("hidden", c.hidden);
  out.set("vocab_size", c.vocab_size).set("max_positions", c.max_positions).set("experts", c.experts);
  out.set("experts_per_token", c.experts_per_token).set("weights", storage_name(c.quantization));
  out.set("tensors", r.tensors).set("parameters", r.parameters).set("bytes", r.bytes);
  out.set("backbone_parameters", r.backbone_parameters).set("active_parameters", r.active_parameters);
  out.set("engram_parameters", r.engram_parameters).set("draft_parameters", r.draft_parameters);
  out.set("vision_parameters", r.vision_parameters).set("kinds", std::move(kinds));
  out.set("history_bytes_per_token", r.history_bytes_per_token);
  out.set("window_bytes_per_sequence", r.window_bytes).set("tail_bytes_per_sequence", r.tail_bytes);
  return out;
}

std::string plan_text(const ModelConfig& c, const MemoryPlan& p) {
  std::string out;
  const auto line = [&out](std::string_view label, std::int64_t bytes, const std::string& what) {
    fmt::format_to(std::back_inserter(out), "{:<12} {:>12}  {}\n", label,
                   size_text(static_cast<double>(bytes)), what);
  };
  fmt::format_to(std::back_inserter(out), "{}: {} sequences of {} positions, {} rows a step\n\n",
                 c.model_type, p.request.sequences, p.request.context, p.request.rows);
  line("weights", p.weight_bytes, "resident");
  line("history", p.history_bytes, "compressed pools and index keys");
  line("sequences", p.sequence_bytes, "windows and unfinished groups");
  line("workspace", p.workspace_bytes, "activations and scratch of a step");
  line("total", p.total_bytes, "");
  if (p.mapped_bytes > 0)
    line("mapped", p.mapped_bytes,
         "Engram tables, read from the file row by row; page cache, not counted above");
  if (!p.request.memory_bytes) return out;
  out += '\n';
  line("given", *p.request.memory_bytes, p.fits ? "it fits" : "it does not fit");
  if (p.weight_bytes + p.workspace_bytes > *p.request.memory_bytes) {
    out += "The weights and the workspace alone need more than that.\n";
    return out;
  }
  fmt::format_to(std::back_inserter(out), "largest context for {} sequences: {}\n", p.request.sequences,
                 p.largest_context);
  fmt::format_to(std::back_inserter(out), "most sequences of {} positions: {}\n", p.request.context,
                 p.largest_sequences);
  return out;
}

Json plan_json(const MemoryPlan& p) {
  Json out;
  out.set("context", p.request.context).set("sequences", p.request.sequences).set("rows", p.request.rows);
  out.set("weight_bytes", p.weight_bytes)
      .set("mapped_bytes", p.mapped_bytes)
      .set("history_bytes", p.history_bytes);
  out.set("sequence_bytes", p.sequence_bytes)
      .set("workspace_bytes", p.workspace_bytes)
      .set("total_bytes", p.total_bytes);
  if (p.request.memory_bytes) {
    out.set("memory_bytes", *p.request.memory_bytes).set("fits", p.fits);
    out.set("largest_context", p.largest_context).set("largest_sequences", p.largest_sequences);
  }
  return out;
}

}  // namespace deepinfer
