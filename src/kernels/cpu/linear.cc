// Linear and grouped linear: how the work is cut for the threads. Few rows: every thread streams its share of
// the weight tiles. Many rows: rows are packed once, then (panel of outputs, block of rows) pairs are
// independent tasks.
#include <algorithm>
#include <functional>

#include "base/check.h"
#include "base/thread_pool.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/workspace.h"
#include "kernels/ref/ref.h"

namespace deepinfer::cpu {
namespace {

// `groups` products side by side: group g reads x + g*x_step and owns outputs [g*n, (g+1)*n) of w and of y.
struct Job {
  const float* x;
  std::int64_t x_stride;
  std::int64_t x_step;
  Weight w;
  std::int64_t groups;
  float* y;
  std::int64_t y_stride;
  std::int64_t rows;
  bool bf16;

  std::int64_t n() const { return w.n / groups; }
  GemmOutput output(std::int64_t group, std::int64_t row) const {
    return {y + row * y_stride + group * n(), y_stride, group * n(), (group + 1) * n(), bf16};
  }
  std::int64_t tile_begin(std::int64_t group) const { return group * n() / kPackRows; }
  std::int64_t tile_end(std::int64_t group) const { return ((group + 1) * n() + kPackRows - 1) / kPackRows; }
};

constexpr std::int64_t kSerialProducts = 1 << 16;  // below this a second thread costs more than it brings
constexpr std::int64_t kMaxDirectRows = 8;
constexpr std::int64_t kPackedFloats = std::int64_t{1} << 23;  // rows packed at a time

void few_rows(const Exec& exec, const Job& job) {
  const std::int64_t tiles = job.tile_end(0) - job.tile_begin(0) + (job.groups > 1 ? 1 : 0);
  // Pieces of whole groups of four tiles, about 64 Ki products each, but at least four a thread.
  const std::int64_t by_size = std::max<std::int64_t>(1, kSerialProducts / (kPackRows * job.w.k));
  const std::int64_t by_share = tiles * job.groups / (4 * exec.threads->thread_count());
  const std::int64_t piece =
      std::max<std::int64_t>(4, std::max(by_size, std::min<std::int64_t>(by_share, 64)) / 4 * 4);
  const std::int64_t pieces = (tiles + piece - 1) / piece;
  const float* x = job.x;
  std::int64_t x_step = job.x_step;
  if (job.rows > 1) {
    x_step = packed_few_size(job.w.k);
    auto* packed = scratch<float>(Scratch::kPacked, x_step * job.groups);
    for (std::int64_t group = 0; group < job.groups; ++group) {
      const float* rows[kMaxDirectRows];
      for (std::int64_t r = 0; r < job.rows; ++r) rows[r] = job.x + r * job.x_stride + group * job.x_step;
      gemm_pack_few(rows, job.rows, 0, job.w.k, packed + group * x_step);
    }
    x = packed;
  }
  const auto body = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t group = i / pieces;
      const std::int64_t first = job.tile_begin(group) + i % pieces * piece;
      const std::int64_t last = std::min(first + piece, job.tile_end(group));
      if (first < last) gemm_direct(job.w, first, last, x + group * x_step, job.rows, job.output(group, 0));
    }
  };
  const std::int64_t count = pieces * job.groups;
  const bool serial = job.rows * job.w.n * job.w.k < 2 * kSerialProducts;
  exec.threads->parallel_for(count, serial ? count : 1, std::ref(body));
}

void many_rows(const Exec& exec, const Job& job, const GemmTraits& traits) {
  const std::int64_t k = job.w.k;
  const std::int64_t panels =
      (job.tile_end(0) - job.tile_begin(0) + (job.groups > 1 ? 1 : 0) + traits.panel_tiles - 1) /
      traits.panel_tiles;
  std::int64_t block = kPanelRows;
  while (block > 4 * traits.block_rows &&
         panels * job.groups * ((job.rows + block - 1) / block) < 3 * exec.threads->thread_count()) {
    block /= 2;
  }
  const std::int64_t blocks = (job.rows + block - 1) / block;
  const std::int64_t group_floats = (job.rows + traits.block_rows) * k;
  auto* packed = scratch<float>(Scratch::kPacked, group_floats * job.groups);
  const bool serial = job.rows * job.w.n * k < 2 * kSerialProducts;
  const auto pack = [&](std::int64_t begin, std::int64_t end, int) {
    const float* x[kPanelRows];
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t group = i / blocks, row = i % blocks * block;
      const std::int64_t rows = std::min(block, job.rows - row);
      for (std::int64_t r = 0; r < rows; ++r) x[r] = job.x + (row + r) * job.x_stride + group * job.x_step;
      gemm_pack_rows(x, rows, k, 0, k, packed + group * group_floats + row * k);
    }
  };
  exec.threads->parallel_for(blocks * job.groups, serial ? blocks * job.groups : 1, std::ref(pack));
  const auto body = [&](std::int64_t begin, std::int64_t end, int) {
    void* area = scratch_bytes(Scratch::kPanel, kPanelScratchBytes);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t group = i / panels % job.groups, row = i / panels / job.groups * block;
      const std::int64_t first = job.tile_begin(group) + i % panels * traits.panel_tiles;
      const std::int64_t last = std::min(first + traits.panel_tiles, job.tile_end(group));
      if (first >= last) continue;
      gemm_panel(job.w, first, last, packed + group * group_floats + row * k, std::min(block, job.rows - row),
                 job.output(group, row), area);
    }
  };
  const std::int64_t count = panels * job.groups * blocks;
  exec.threads->parallel_for(count, serial ? count : 1, std::ref(body));
}

void run(const Exec& exec, Job job) {
  const GemmTraits traits = gemm_traits();
  DI_CHECK(traits.direct_rows <= kMaxDirectRows);
  if (job.rows <= traits.direct_rows) {
    if (job.rows > 0) few_rows(exec, job);
    return;
  }
  // Very long inputs in portions, so that the packed copy stays small.
  const std::int64_t portion =
      std::max(kPanelRows, kPackedFloats / (job.w.k * job.groups) / kPanelRows * kPanelRows);
  const std::int64_t rows = job.rows;
  for (std::int64_t r = 0; r < rows; r += portion) {
    Job part = job;
    part.x += r * job.x_stride;
    part.y += r * job.y_stride;
    part.rows = std::min(portion, rows - r);
    many_rows(exec, part, traits);
  }
}

}  // namespace

void linear(const Exec& exec, const LinearOp& op) {
  if (op.w.packed == nullptr) return ref::linear(exec, op);
  run(exec, {op.x, op.x_stride, 0, op.w, 1, op.y, op.y_stride, op.rows, op.round == Round::kBf16});
}

void grouped_linear(const Exec& exec, const GroupedLinearOp& op) {
  if (op.w.packed == nullptr) return ref::grouped_linear(exec, op);
  run(exec,
      {op.x, op.groups * op.w.k, op.w.k, op.w, op.groups, op.y, op.w.n, op.rows, op.round == Round::kBf16});
}

}  // namespace deepinfer::cpu
