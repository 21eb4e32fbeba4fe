// A row's bits depend on its sequence's tokens alone: not on chunk borders, not on neighbours, not on what
// was rolled back. Checked with bit-for-bit equality on the bundled model in official numerics.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "support/golden.h"

namespace deepinfer {
namespace {

using testing::Golden;
using testing::Runner;

constexpr std::int64_t kMaxTokens = 1024;
constexpr BlockId kBlocksPerSequence = kMaxTokens / kBlockTokens;

std::vector<TokenId> golden_prompt(std::size_t count) {
  std::vector<TokenId> ids =
      testing::to_tokens(Golden("tests/golden/v41-demo/golden_v41_fp32.safetensors").ints("prompt_ids"));
  ids.resize(count);
  return ids;
}

class V41Invariance : public ::testing::Test {
 protected:
  // One model for all tests of this program: opening it costs more than most tests.
  static Decoder& model() {
    static const std::unique_ptr<Decoder> shared = testing::open_or_die(
        "models/demo-v41", {.max_rows = 1024, .block_count = 66 * kBlocksPerSequence, .slot_count = 66});
    return *shared;
  }
  static Runner sequence(SlotId slot) { return Runner(model(), slot, slot * kBlocksPerSequence, kMaxTokens); }
  static std::size_t vocab() { return static_cast<std::size_t>(model().vocab_size()); }

  static void expect_same(const float* a, const float* b, std::size_t rows, const std::string& what) {
    for (std::size_t r = 0; r < rows; ++r) {
      ASSERT_EQ(std::memcmp(a + r * vocab(), b + r * vocab(), vocab() * sizeof(float)), 0)
          << what << ", row " << r;
    }
  }

  // Logits of the last token of prompt[0, n) by prefill(n - 1) and one decode step, against prefill(n).
  static void expect_decode_equals_prefill(const std::vector<TokenId>& prompt, std::size_t n) {
    const std::vector<TokenId> head(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(n - 1));
    const std::vector<TokenId> last = {prompt[n - 1]};
    Runner whole = sequence(0), steps = sequence(1);
    std::vector<TokenId> all = head;
    all.push_back(last[0]);
    const std::vector<float> a = run_last(whole, all);
    if (!head.empty()) run_last(steps, head);
    const std::vector<float> b = run_last(steps, last);
    expect_same(a.data(), b.data(), 1, "prompt length " + std::to_string(n));
  }

  // Runs `tokens` in one chunk and returns the logits of the last row.
  static std::vector<float> run_last(Runner& runner, const std::vector<TokenId>& tokens) {
    const Chunk chunk = runner.next_chunk(tokens, static_cast<std::int64_t>(tokens.size()) - 1);
    EXPECT_TRUE(model().forward({&chunk, 1}).ok());
    std::vector<float> logits(vocab());
    EXPECT_TRUE(model().logits(0, 1, logits).ok());
    runner.commit(tokens);
    return logits;
  }

  static void expect_split_equals_whole(const std::vector<TokenId>& prompt, const std::vector<float>& whole,
                                        std::size_t split) {
    Runner runner = sequence(1);
    const std::vector<TokenId> head(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(split));
    const std::vector<TokenId> tail(prompt.begin() + static_cast<std::ptrdiff_t>(split), prompt.end());
    run_last(runner, head);
    const std::vector<float> rest = runner.append(tail, kMaxTokens);
    expect_same(whole.data() + split * vocab(), rest.data(), tail.size(),
                "split at " + std::to_string(split));
  }
};

TEST_F(V41Invariance, TokenByTokenEqualsOneShot) {
  const std::vector<TokenId> prompt = golden_prompt(400);
  const std::vector<float> whole = sequence(0).append(prompt, kMaxTokens);
  const std::vector<float> steps = sequence(1).append(prompt, 1);
  expect_same(whole.data(), steps.data(), prompt.size(), "token by token");
}

TEST_F(V41Invariance, DecodeAfterPrefillAtBorders) {
  const std::vector<TokenId> prompt = golden_prompt(400);
  for (const std::size_t n :
       {1,   2,   3,   4,   5,   6,   7,   8,   9,   31,  32,  33,  63,  64,  65,  126, 127, 128, 129,
        130, 131, 143, 144, 145, 146, 191, 192, 255, 256, 257, 258, 272, 273, 383, 384, 385, 399, 400}) {
    expect_decode_equals_prefill(prompt, n);
  }
}

TEST_F(V41Invariance, SplitsAtBorders) {
  const std::vector<TokenId> prompt = golden_prompt(300);
  const std::vector<float> whole = sequence(0).append(prompt, kMaxTokens);
  for (const std::size_t split :
       {1, 2, 3, 15, 16, 17, 63, 64, 127, 128, 129, 143, 144, 145, 171, 172, 200, 255, 256, 257, 298, 299}) {
    expect_split_equals_whole(prompt, whole, split);
  }
}

TEST_F(V41Invariance, ChunkSizesDoNotMatter) {
  const std::vector<TokenId> prompt = golden_prompt(700);
  const std::vector<float> whole = sequence(0).append(prompt, kMaxTokens);
  for (const std::int64_t chunk : {7, 64, 127, 128, 129, 145, 256, 512}) {
    const std::vector<float> other = sequence(1).append(prompt, chunk);
    expect_same(whole.data(), other.data(), prompt.size(), "chunk " + std::to_string(chunk));
  }
}

// The 300-token prompt alone, and as one of 65 sequences of other lengths at other places, decoded together.
TEST_F(V41Invariance, AloneEqualsBatchOf64Others) {
  const std::vector<TokenId> prompt = golden_prompt(300);
  Runner alone = sequence(0);
  std::vector<float> expected = run_last(alone, prompt);
  std::mt19937 random(20261201);
  std::vector<Runner> others;
  for (SlotId slot = 2; slot < 66; ++slot) {
    others.push_back(sequence(slot));
    std::vector<TokenId> ids(1 + random() % 200);
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % vocab());
    run_last(others.back(), ids);
  }
  Runner batched = sequence(1);
  const std::vector<TokenId> head(prompt.begin(), prompt.begin() + 290);
  run_last(batched, head);
  for (std::size_t i = 290; i < 300;
       ++i) {  // each step: the prompt's next token among one of every other sequence
    std::vector<std::vector<TokenId>> tokens(65);
    std::vector<Chunk> chunks;
    const std::size_t place = random() % 65;
    for (std::size_t k = 0; k < 65; ++k) {
      tokens[k] = {k == place ? prompt[i] : static_cast<TokenId>(random() % vocab())};
      Runner& runner = k == place ? batched : others[k > place ? k - 1 : k];
      chunks.push_back(runner.next_chunk(tokens[k], 0));
    }
    ASSERT_TRUE(model().forward(chunks).ok());
    std::vector<float> logits(vocab());
    ASSERT_TRUE(model().logits(static_cast<std::int64_t>(place), 1, logits).ok());
    for (std::size_t k = 0; k < 65; ++k)
      (k == place ? batched : others[k > place ? k - 1 : k]).commit(tokens[k]);
    if (i == 299) expect_same(expected.data(), logits.data(), 1, "in a batch of 65");
  }
}

// Preemption throws a sequence's cache away and prefills prompt and answer again, in another slot and other
// blocks.
TEST_F(V41Invariance, RecomputationAfterPreemption) {
  const std::vector<TokenId> ids = golden_prompt(320);
  const std::vector<TokenId> prompt(ids.begin(), ids.begin() + 250), answer(ids.begin() + 250, ids.end());
  Runner undisturbed = sequence(0);
  run_last(undisturbed, prompt);
  const std::vector<float> expected = undisturbed.append(answer, 1);
  Runner before = sequence(1);
  run_last(before, prompt);
  before.append({answer.begin(), answer.begin() + 30}, 1);
  Runner after = sequence(7);
  const std::vector<TokenId> kept(ids.begin(), ids.begin() + 280);
  run_last(after, kept);
  const std::vector<float> rest = after.append({answer.begin() + 30, answer.end()}, 1);
  expect_same(expected.data() + 30 * vocab(), rest.data(), answer.size() - 30, "after preemption");
}

TEST_F(V41Invariance, RolledBackRowsLeaveNoTrace) {
  const unsigned seed = 20261202;
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const std::vector<TokenId> prompt = golden_prompt(330);
  const std::vector<float> expected = sequence(0).append(prompt, kMaxTokens);
  for (int trial = 0; trial < 6; ++trial) {
    Runner runner = sequence(1);
    while (runner.length() < static_cast<std::int64_t>(prompt.size())) {
      const auto at = static_cast<std::size_t>(runner.length());
      const std::size_t keep = std::min(prompt.size() - at, 1 + random() % (trial % 2 == 0 ? 9 : 150));
      std::vector<TokenId> rows(prompt.begin() + static_cast<std::ptrdiff_t>(at),
                                prompt.begin() + static_cast<std::ptrdiff_t>(at + keep));
      const std::size_t drop = random() % (kMaxRollbackRows + 1);
      for (std::size_t i = 0; i < drop; ++i) rows.push_back(static_cast<TokenId>(random() % vocab()));
      const std::vector<float> logits = runner.append(rows, kMaxTokens);
      expect_same(expected.data() + at * vocab(), logits.data(), keep, "trial " + std::to_string(trial));
      runner.roll_back(static_cast<std::int64_t>(drop));
    }
  }
}

TEST_F(V41Invariance, ThreadCountDoesNotMatter) {
  const std::vector<TokenId> prompt = golden_prompt(200);
  const std::vector<float> expected = sequence(0).append(prompt, kMaxTokens);
  for (const int threads : {1, 2, 3}) {
    const std::unique_ptr<Decoder> other =
        testing::open_or_die("models/demo-v41", {.block_count = 4, .slot_count = 1, .threads = threads});
    const std::vector<float> logits = Runner(*other, 0, 0, kMaxTokens).append(prompt, 200);
    expect_same(expected.data(), logits.data(), prompt.size(), std::to_string(threads) + " threads");
  }
}

// Every length and every split: minutes, so not part of the quick suite.
class V41InvarianceSlow : public V41Invariance {};

TEST_F(V41InvarianceSlow, DecodeAfterPrefillAtEveryLengthTo400) {
  const std::vector<TokenId> prompt = golden_prompt(400);
  for (std::size_t n = 1; n <= 400; ++n) expect_decode_equals_prefill(prompt, n);
}

TEST_F(V41InvarianceSlow, EverySplitOf300) {
  const std::vector<TokenId> prompt = golden_prompt(300);
  const std::vector<float> whole = sequence(0).append(prompt, kMaxTokens);
  for (std::size_t split = 1; split < 300; ++split) expect_split_equals_whole(prompt, whole, split);
}

}  // namespace
}  // namespace deepinfer
