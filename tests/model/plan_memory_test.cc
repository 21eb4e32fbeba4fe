// The memory plan against a process that really runs: the model is opened, every cache block and slot is
// used, and what the process then holds is compared with what the plan said before.
#include <gtest/gtest.h>
#include <malloc.h>

#include <fstream>
#include <random>

#include "model/open_model.h"
#include "model/report.h"

namespace deepinfer {
namespace {

/// Memory of this process that belongs to no file, in bytes.
std::int64_t anonymous_bytes() {
  std::ifstream status("/proc/self/status");
  std::string label;
  while (status >> label) {
    std::int64_t kib = 0;
    if (label == "RssAnon:" && status >> kib) return kib * 1024;
    std::getline(status, label);
  }
  return -1;
}

/// Opens the model as planned, uses every block and slot in steps of the planned size, and compares.
void check(const PlanRequest& request) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory hides the program's";
#endif
  ModelOptions options;
  options.max_rows = request.rows;
  options.block_count = request.sequences * request.context / kBlockTokens;
  options.slot_count = request.sequences;
  options.threads = request.threads;
  const std::int64_t before = anonymous_bytes();
  Result<std::unique_ptr<Decoder>> opened = open_model("models/demo-v41", options);
  ASSERT_TRUE(opened.ok()) << opened.error().to_string();
  Decoder& model = **opened;
  ::malloc_trim(0);  // what the loader freed again
  std::mt19937 rng(1);
  std::vector<TokenId> tokens(static_cast<std::size_t>(request.context));
  for (TokenId& t : tokens) t = static_cast<TokenId>(rng() % 8000);
  std::vector<BlockId> blocks(static_cast<std::size_t>(request.context / kBlockTokens));
  for (std::int64_t s = 0; s < request.sequences; ++s) {
    for (std::size_t b = 0; b < blocks.size(); ++b)
      blocks[b] = static_cast<BlockId>(static_cast<std::size_t>(s) * blocks.size() + b);
    for (std::int64_t start = 0; start < request.context; start += request.rows) {
      const std::span<const TokenId> all(tokens);
      Chunk chunk;
      chunk.slot = static_cast<SlotId>(s);
      chunk.start = start;
      chunk.tokens = all.subspan(static_cast<std::size_t>(start), static_cast<std::size_t>(request.rows));
      chunk.history = all.first(static_cast<std::size_t>(start));
      chunk.blocks = blocks;
      const Status status = model.forward(std::span(&chunk, 1));
      ASSERT_TRUE(status.ok()) << status.error().to_string();
    }
  }
  const MemoryPlan plan = plan_memory(model.config(), request).value();
  // The embedding stays in the file; everything else of the plan is this process's own memory.
  const std::int64_t embedding = model.config().vocab_size * model.config().hidden * 2;
  const double planned = static_cast<double>(plan.total_bytes - embedding);
  const double measured = static_cast<double>(anonymous_bytes() - before);
  std::printf("%lld rows, %lld sequences: planned %.2f MiB, measured %.2f MiB (%+.1f %%)\n",
              static_cast<long long>(request.rows), static_cast<long long>(request.sequences),
              planned / (1 << 20), measured / (1 << 20), (planned / measured - 1) * 100);
  EXPECT_NEAR(planned / measured, 1.0, 0.03);
}

// Each case runs in a process of its own: CTest starts every test by itself.
TEST(PlanMemory, LargeStepsAreRightToThreePercent) {
  check({.context = 1024, .sequences = 4, .rows = 512, .threads = 1});
}

TEST(PlanMemory, ManySequencesAreRightToThreePercent) {
  check({.context = 256, .sequences = 32, .rows = 128, .threads = 2});
}

}  // namespace
}  // namespace deepinfer
