// Routed experts and the shared one. Rows are sorted by expert once; an expert's rows are packed together, so
// that its weights are decoded once for all of them. Two passes over the threads:
//   up    tasks (expert, block of its rows, stretch of inner channels): gate and up product, SwiGLU,
//   rounding; the result
//         goes straight into the packed order the second pass reads;
//   down  tasks (stretch of output channels): all experts one after the other in ascending order, each adding
//   to its rows.
//         One task owns its channels of all rows, so the sum has the fixed order without a buffer of partial
//         results.
#include <algorithm>
#include <functional>

#include "base/check.h"
#include "base/thread_pool.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gated_unit.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/workspace.h"
#include "kernels/ref/ref.h"

namespace deepinfer::cpu {
namespace {

constexpr std::int64_t kPackedFloats = std::int64_t{1} << 24;  // packed inputs at a time
constexpr std::int64_t kSerialProducts = 1 << 17;

// The rows of one expert within a portion: entries [begin, begin + count) of the sorted list.
struct Active {
  const ExpertWeights* weights;
  std::int64_t begin;
  std::int64_t count;
  std::int64_t first_task;  // of the up pass
  const float* x;           // packed [count, dim]
  float* a;                 // packed [count, inner]
};

std::int64_t up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Everything a portion of rows needs, in scratch memory of the calling thread.
struct Plan {
  std::int64_t row_begin, rows;
  std::int64_t actives = 0;
  Active* active = nullptr;
  std::int32_t* row = nullptr;  // [entries] row within the portion, sorted by expert
  float* weight = nullptr;      // [entries]
  std::int64_t up_tasks = 0;
};

class Run {
 public:
  Run(const Exec& exec, const ExpertsOp& op) : exec_(exec), op_(op), traits_(gemm_traits()) {
    // A stretch holds whole panels and whole quantisation blocks.
    stretch_ = std::max<std::int64_t>(
        64, op.quantize_block > 0 ? up(64, op.quantize_block) * op.quantize_block : 64);
    stretch_ = up(stretch_, kPackRows) * kPackRows;
    if (op.quantize_block > 0) {
      while (stretch_ % op.quantize_block != 0) stretch_ += kPackRows;
    }
  }

  void portion(std::int64_t begin, std::int64_t rows) {
    plan(begin, rows);
    pack_inputs();
    const std::int64_t work = plan_.up_tasks * stretch_ * op_.dim;
    const auto up_body = [this](std::int64_t b, std::int64_t e, int) { up_pass(b, e); };
    exec_.threads->parallel_for(plan_.up_tasks, work < kSerialProducts ? plan_.up_tasks : 1, up_body);
    const std::int64_t width = down_width();
    const std::int64_t down_tasks = up(op_.dim, width);
    const auto down_body = [this, width](std::int64_t b, std::int64_t e, int) {
      for (std::int64_t i = b; i < e; ++i) down_pass(i * width, std::min((i + 1) * width, op_.dim));
    };
    exec_.threads->parallel_for(down_tasks, work < kSerialProducts ? down_tasks : 1, down_body);
  }

 private:
  bool few(std::int64_t count) const { return count <= traits_.direct_rows; }
  bool bf16() const { return op_.round == Round::kBf16; }
  // Floats of an expert's packed rows.
  std::int64_t packed_size(std::int64_t count, std::int64_t k) const {
    return few(count) ? packed_few_size(k) : (count + traits_.block_rows) * k;
  }
  std::int64_t down_width() const {
    const std::int64_t panel = traits_.panel_tiles * kPackRows;
    const std::int64_t share = op_.dim / (4 * exec_.threads->thread_count());
    return std::clamp<std::int64_t>(share / 64 * 64, std::max<std::int64_t>(64, panel), 512);
  }

  void plan(std::int64_t begin, std::int64_t rows) {
    const auto experts = static_cast<std::int64_t>(op_.experts.size());
    const std::int64_t slots = rows * op_.top_k;
    const std::int64_t entries = slots + (op_.shared ? rows : 0);
    const std::int64_t bytes =
        (experts + 1) * static_cast<std::int64_t>(sizeof(Active)) + entries * 8 + (experts + 1) * 8;
    auto* area = scratch<std::uint8_t>(Scratch::kPlan, bytes);
    plan_ = Plan{begin, rows};
    plan_.active = reinterpret_cast<Active*>(area);
    auto* next = reinterpret_cast<std::int64_t*>(plan_.active + experts + 1);
    plan_.row = reinterpret_cast<std::int32_t*>(next + experts + 1);
    plan_.weight = reinterpret_cast<float*>(plan_.row + entries);
    const std::int32_t* chosen = op_.chosen + begin * op_.top_k;
    // Counting sort by expert; rows stay in order.
    std::fill(next, next + experts + 1, 0);
    for (std::int64_t s = 0; s < slots; ++s) {
      DI_DCHECK(chosen[s] >= 0 && chosen[s] < experts);
      ++next[chosen[s] + 1];
    }
    for (std::int64_t e = 0; e < experts; ++e) {
      if (next[e + 1] != 0) add_active(op_.experts[static_cast<std::size_t>(e)], next[e], next[e + 1]);
      next[e + 1] += next[e];
    }
    for (std::int64_t s = 0; s < slots; ++s) {
      const std::int64_t to = next[chosen[s]]++;
      plan_.row[to] = static_cast<std::int32_t>(s / op_.top_k);
      plan_.weight[to] = op_.weight[begin * op_.top_k + s];
    }
    if (op_.shared) {
      add_active(*op_.shared, slots, rows);
      for (std::int64_t r = 0; r < rows; ++r) {
        plan_.row[slots + r] = static_cast<std::int32_t>(r);
        plan_.weight[slots + r] = 1.0f;
      }
    }
  }

  void add_active(const ExpertWeights& weights, std::int64_t begin, std::int64_t count) {
    plan_.active[plan_.actives++] = {&weights, begin, count, plan_.up_tasks, nullptr, nullptr};
    plan_.up_tasks += up(op_.inner, stretch_) * up(count, kPanelRows);
  }

  const float* input_row(const Active& e, std::int64_t i) const {
    return op_.x + (plan_.row_begin + plan_.row[e.begin + i]) * op_.dim;
  }

  void pack_inputs() {
    std::int64_t x_floats = 0, a_floats = 0;
    for (std::int64_t i = 0; i < plan_.actives; ++i) {
      const std::int64_t count = plan_.active[i].count;
      if (count > 1) x_floats += packed_size(count, op_.dim);
      a_floats += packed_size(count, op_.inner);
    }
    auto* x = scratch<float>(Scratch::kPacked, x_floats);
    auto* a = scratch<float>(Scratch::kGather, a_floats);
    for (std::int64_t i = 0; i < plan_.actives; ++i) {
      Active& e = plan_.active[i];
      e.a = a;
      a += packed_size(e.count, op_.inner);
      e.x = e.count > 1 ? x : input_row(e, 0);
      if (e.count > 1) x += packed_size(e.count, op_.dim);
    }
    if (x_floats == 0) return;
    const auto pack = [this](std::int64_t b, std::int64_t end, int) {
      for (std::int64_t i = b; i < end; ++i) pack_expert(plan_.active[i]);
    };
    exec_.threads->parallel_for(plan_.actives, x_floats < (1 << 14) ? plan_.actives : 1, pack);
  }

  void pack_expert(const Active& e) {
    if (e.count == 1) return;
    const float* rows[kPanelRows];
    auto* packed = const_cast<float*>(e.x);
    for (std::int64_t begin = 0; begin < e.count; begin += kPanelRows) {
      const std::int64_t count = std::min(kPanelRows, e.count - begin);
      for (std::int64_t r = 0; r < count; ++r) rows[r] = input_row(e, begin + r);
      if (few(e.count)) {
        gemm_pack_few(rows, count, 0, op_.dim, packed);
      } else {
        gemm_pack_rows(rows, count, op_.dim, 0, op_.dim, packed + begin * op_.dim);
      }
    }
  }

  // Columns [n_begin, n_end) of a product for `count` rows starting at row `begin` of an expert, to y [count,
  // stride].
  void product(const Weight& w, const Active& e, const float* packed, std::int64_t begin, std::int64_t count,
               std::int64_t n_begin, std::int64_t n_end, float* y, std::int64_t stride, void* panel) {
    const std::int64_t tile_end = up(n_end, kPackRows);
    if (few(e.count)) {
      gemm_direct(w, n_begin / kPackRows, tile_end, packed, count, {y, stride, n_begin, n_end, bf16()});
      return;
    }
    for (std::int64_t tile = n_begin / kPackRows; tile < tile_end; tile += traits_.panel_tiles) {
      gemm_panel(w, tile, std::min(tile + traits_.panel_tiles, tile_end), packed + begin * w.k, count,
                 {y, stride, n_begin, n_end, bf16()}, panel);
    }
  }

  void up_pass(std::int64_t begin, std::int64_t end) {
    void* panel = scratch_bytes(Scratch::kPanel, kPanelScratchBytes);
    auto* g = scratch<float>(Scratch::kScores, 2 * kPanelRows * stretch_);
    float* p = g + kPanelRows * stretch_;
    const std::int64_t stretches = up(op_.inner, stretch_);
    for (std::int64_t task = begin; task < end; ++task) {
      const Active* after =
          std::upper_bound(plan_.active, plan_.active + plan_.actives, task,
                           [](std::int64_t t, const Active& e) { return t < e.first_task; });
      const Active& e = after[-1];
      const std::int64_t row = (task - e.first_task) / stretches * kPanelRows;
      const std::int64_t n = (task - e.first_task) % stretches * stretch_;
      const std::int64_t count = std::min(kPanelRows, e.count - row);
      const std::int64_t width = std::min(stretch_, op_.inner - n);
      product(e.weights->w1, e, e.x, row, count, n, n + width, g, stretch_, panel);
      product(e.weights->w3, e, e.x, row, count, n, n + width, p, stretch_, panel);
      const float* rows[kPanelRows];
      for (std::int64_t r = 0; r < count; ++r) {
        gated_unit(g + r * stretch_, p + r * stretch_, width, op_.limit, plan_.weight[e.begin + row + r],
                   op_.quantize_block);
        rows[r] = g + r * stretch_;
      }
      if (few(e.count)) {
        gemm_pack_few(rows, count, n, width, e.a);
      } else {
        gemm_pack_rows(rows, count, op_.inner, n, width, e.a + row * op_.inner);
      }
    }
  }

  void down_pass(std::int64_t n_begin, std::int64_t n_end) {
    void* panel = scratch_bytes(Scratch::kPanel, kPanelScratchBytes);
    const std::int64_t width = n_end - n_begin;
    auto* y = scratch<float>(Scratch::kScores, kPanelRows * width);
    float* out = op_.out + plan_.row_begin * op_.dim;
    for (std::int64_t r = 0; r < plan_.rows; ++r) {
      std::fill(out + r * op_.dim + n_begin, out + r * op_.dim + n_end, 0.0f);
    }
    for (std::int64_t i = 0; i < plan_.actives; ++i) {
      const Active& e = plan_.active[i];
      for (std::int64_t row = 0; row < e.count; row += kPanelRows) {
        const std::int64_t count = std::min(kPanelRows, e.count - row);
        product(e.weights->w2, e, e.a, row, count, n_begin, n_end, y, width, panel);
        for (std::int64_t r = 0; r < count; ++r) {
          add_row(out + plan_.row[e.begin + row + r] * op_.dim + n_begin, y + r * width, width);
        }
      }
    }
    if (!bf16()) return;
    for (std::int64_t r = 0; r < plan_.rows; ++r) bf16_row(out + r * op_.dim + n_begin, width);
  }

  const Exec& exec_;
  const ExpertsOp& op_;
  GemmTraits traits_;
  std::int64_t stretch_ = 64;
  Plan plan_{};
};

bool packed(const ExpertWeights& e) {
  return e.w1.packed != nullptr && e.w3.packed != nullptr && e.w2.packed != nullptr;
}

}  // namespace

void experts(const Exec& exec, const ExpertsOp& op) {
  const bool all_packed =
      std::all_of(op.experts.begin(), op.experts.end(), packed) && (!op.shared || packed(*op.shared));
  if (!all_packed) return ref::experts(exec, op);
  Run run(exec, op);
  const std::int64_t portion =
      std::max<std::int64_t>(64, kPackedFloats / ((op.top_k + 1) * std::max(op.dim, op.inner)));
  for (std::int64_t begin = 0; begin < op.rows; begin += portion)
    run.portion(begin, std::min(portion, op.rows - begin));
}

}  // namespace deepinfer::cpu
