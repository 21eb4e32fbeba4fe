// A row's logits are the same bits whatever else runs: however its sequence is cut into chunks, whichever
// sequences share the step, whatever was rolled back before, whoever used the slot and the blocks earlier.
// The V4 family, with both kernel choices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "support/golden.h"

namespace deepinfer {
namespace {

using testing::Runner;

constexpr const char* kModel = "models/tiny-v4";

struct Case {
  const char* name;
  KernelChoice kernels;
  std::int64_t stride;  ///< of the splits tried, besides those around borders
};

std::vector<TokenId> random_tokens(std::mt19937& rng, std::int64_t count, std::int64_t vocab) {
  std::uniform_int_distribution<TokenId> id(3, static_cast<TokenId>(vocab) - 1);
  std::vector<TokenId> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(id(rng));
  return out;
}

std::vector<TokenId> slice(const std::vector<TokenId>& tokens, std::int64_t begin, std::int64_t end) {
  return {tokens.begin() + begin, tokens.begin() + end};
}

class V4Invariance : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr std::int64_t kMaxRows = 768;

  void SetUp() override {
    seed_ = std::random_device{}();
    std::printf("seed %u\n", seed_);
    rng_.seed(seed_);
    model_ = open();
  }

  std::unique_ptr<Decoder> open() const {
    return testing::open_or_die(kModel, {.kernels = GetParam().kernels,
                                         .max_rows = kMaxRows,
                                         .block_count = 64,
                                         .slot_count = 8,
                                         .threads = 1});
  }
  bool fast() const { return GetParam().kernels == KernelChoice::kFast; }
  std::vector<TokenId> tokens(std::int64_t count) { return random_tokens(rng_, count, model_->vocab_size()); }
  std::size_t vocab() const { return static_cast<std::size_t>(model_->vocab_size()); }

  // Appends `part` to `runner` in one step; logits of its rows [from, end).
  std::vector<float> append(Runner& runner, const std::vector<TokenId>& part, std::int64_t from) {
    const Chunk chunk = runner.next_chunk(part, from);
    const Status status = model_->forward({&chunk, 1});
    DI_CHECK(status.ok(), status.ok() ? "" : status.error().to_string());
    std::vector<float> out(static_cast<std::size_t>(model_->output_rows()) * vocab());
    DI_CHECK(model_->logits(0, model_->output_rows(), out).ok(), "logits");
    runner.commit(part);
    return out;
  }

  // Logits of every row, from one prefill.
  std::vector<float> whole(const std::vector<TokenId>& prompt) {
    Runner runner(*model_, 7, 56, kMaxRows);
    return append(runner, prompt, 0);
  }

  // Is `part` equal to the rows of `all` that start at row `begin`?
  ::testing::AssertionResult same_rows(const std::vector<float>& part, const std::vector<float>& all,
                                       std::int64_t begin) {
    const std::size_t offset = static_cast<std::size_t>(begin) * vocab();
    DI_CHECK(offset + part.size() <= all.size(), "rows outside");
    if (std::memcmp(part.data(), all.data() + offset, part.size() * sizeof(float)) == 0)
      return ::testing::AssertionSuccess();
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (part[i] != all[offset + i]) {
        return ::testing::AssertionFailure()
               << "row " << begin + static_cast<std::int64_t>(i / vocab()) << ", token " << i % vocab()
               << ": " << part[i] << " instead of " << all[offset + i];
      }
    }
    return ::testing::AssertionFailure() << "equal values of different bits";
  }

  unsigned seed_ = 0;
  std::mt19937 rng_;
  std::unique_ptr<Decoder> model_;
};

// For every split of one prompt: prefilling up to it, decoding one token on top, and running all of the rest
// as a second chunk (after taking the decoded row back) give the rows of the one prefill.
TEST_P(V4Invariance, EveryLengthAndEverySplitGivesTheSameBits) {
  constexpr std::int64_t kLength = 300;
  const std::vector<TokenId> prompt = tokens(kLength);
  const std::vector<float> want = whole(prompt);
  for (std::int64_t split = 1; split <= kLength; ++split) {
    const std::int64_t phase = split % 128;  // borders of the window and of the groups
    if (split % GetParam().stride != 0 && phase > 1 && phase != 127) continue;
    Runner runner(*model_, 1, 8, 512);
    ASSERT_TRUE(same_rows(append(runner, slice(prompt, 0, split), split - 1), want, split - 1))
        << "prefill of " << split;
    if (split == kLength) break;
    ASSERT_TRUE(same_rows(append(runner, slice(prompt, split, split + 1), 0), want, split))
        << "decode after " << split;
    runner.roll_back(1);
    const std::int64_t rest = kLength - split;
    const std::int64_t shown = std::min<std::int64_t>(rest, 2);
    ASSERT_TRUE(same_rows(append(runner, slice(prompt, split, kLength), rest - shown), want, kLength - shown))
        << "split " << split;
  }
}

TEST_P(V4Invariance, EveryChunkSizeGivesTheSameBits) {
  const std::int64_t length = fast() ? 700 : 280;
  const std::vector<TokenId> prompt = tokens(length);
  const std::vector<float> want = whole(prompt);
  for (const std::int64_t chunk :
       {1, 2, 3, 7, 16, 63, 64, 127, 128, 129, 144, 145, 255, 256, 257, 512, 699}) {
    if (!fast() && (chunk < 127 || chunk > 129)) continue;
    Runner runner(*model_, 2, 12, kMaxRows);
    for (std::int64_t begin = 0; begin < length; begin += chunk) {
      const std::int64_t end = std::min(begin + chunk, length);
      ASSERT_TRUE(same_rows(append(runner, slice(prompt, begin, end), end - begin - 1), want, end - 1))
          << "chunks of " << chunk;
    }
  }
}

TEST_P(V4Invariance, ASequenceInABatchEqualsItselfAlone) {
  constexpr std::size_t kSequences = 6;
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::vector<float>> want;
  for (std::size_t s = 0; s < kSequences; ++s) {
    prompts.push_back(tokens(std::uniform_int_distribution<std::int64_t>(20, fast() ? 420 : 150)(rng_)));
    want.push_back(whole(prompts.back()));
  }
  std::vector<Runner> runners;
  for (std::size_t s = 0; s < kSequences; ++s) {
    runners.emplace_back(*model_, static_cast<SlotId>(s), static_cast<BlockId>(4 * s), 1024);
  }
  for (;;) {
    // A random subset of the unfinished sequences, each with a random number of rows.
    std::vector<std::size_t> members;
    for (std::size_t s = 0; s < kSequences; ++s) {
      const bool left = runners[s].length() < static_cast<std::int64_t>(prompts[s].size());
      if (left && rng_() % 3 != 0) members.push_back(s);
    }
    std::shuffle(members.begin(), members.end(), rng_);
    std::vector<std::vector<TokenId>> parts;
    for (const std::size_t s : members) {
      const std::int64_t begin = runners[s].length();
      const std::int64_t left = static_cast<std::int64_t>(prompts[s].size()) - begin;
      const std::int64_t most = rng_() % 2 == 0 ? 1 : 120;
      parts.push_back(
          slice(prompts[s], begin,
                begin + std::uniform_int_distribution<std::int64_t>(1, std::min(most, left))(rng_)));
    }
    std::vector<Chunk> chunks;
    for (std::size_t i = 0; i < members.size(); ++i) {
      chunks.push_back(
          runners[members[i]].next_chunk(parts[i], static_cast<std::int64_t>(parts[i].size()) - 1));
    }
    ASSERT_TRUE(model_->forward(chunks).ok());
    for (std::size_t i = 0; i < members.size(); ++i) {
      std::vector<float> row(vocab());
      ASSERT_TRUE(model_->logits(static_cast<std::int64_t>(i), 1, row).ok());
      Runner& runner = runners[members[i]];
      runner.commit(parts[i]);
      ASSERT_TRUE(same_rows(row, want[members[i]], runner.length() - 1)) << "sequence " << members[i];
    }
    const bool done = std::all_of(runners.begin(), runners.end(), [&](const Runner& r) {
      const auto s = static_cast<std::size_t>(&r - runners.data());
      return r.length() == static_cast<std::int64_t>(prompts[s].size());
    });
    if (done) break;
  }
}

TEST_P(V4Invariance, RowsRolledBackNeverHappened) {
  const std::int64_t length = fast() ? 420 : 160;
  const std::vector<TokenId> prompt = tokens(length);
  const std::vector<float> want = whole(prompt);
  for (int round = 0; round < (fast() ? 12 : 3); ++round) {
    Runner runner(*model_, 3, 20, kMaxRows);
    while (runner.length() < length) {
      // Wrong tokens first (a rejected draft), at most what may be taken back.
      const std::int64_t wrong = std::uniform_int_distribution<std::int64_t>(0, kMaxRollbackRows)(rng_);
      const std::int64_t right =
          std::uniform_int_distribution<std::int64_t>(1, round % 2 == 0 ? 24 : 150)(rng_);
      const std::int64_t end = std::min(length, runner.length() + right);
      std::vector<TokenId> part = slice(prompt, runner.length(), end);
      const std::vector<TokenId> rejected = tokens(wrong);
      part.insert(part.end(), rejected.begin(), rejected.end());
      const std::int64_t from = static_cast<std::int64_t>(part.size()) - wrong - 1;
      std::vector<float> row = append(runner, part, from);
      row.resize(vocab());
      runner.roll_back(wrong);
      ASSERT_TRUE(same_rows(row, want, runner.length() - 1)) << "after taking back " << wrong << " rows";
    }
  }
}

TEST_P(V4Invariance, AShortSequenceAfterALongOneSeesNothingOfIt) {
  const std::vector<TokenId> first = tokens(fast() ? 700 : 300);
  const std::unique_ptr<Decoder> untouched = open();
  for (const std::int64_t length : {1, 3, 4, 127, 128, 129, 200}) {
    Runner old(*model_, 4, 30, kMaxRows);
    append(old, first, static_cast<std::int64_t>(first.size()) - 1);
    const std::vector<TokenId> prompt = tokens(length);
    Runner again(*model_, 4, 30, kMaxRows);
    const std::vector<float> have = append(again, prompt, length - 1);
    Runner fresh(*untouched, 0, 0, kMaxRows);
    const std::vector<float> want = fresh.append(prompt, kMaxRows);
    ASSERT_TRUE(same_rows(have, want, length - 1)) << "length " << length;
  }
}

TEST_P(V4Invariance, FastKernelsEqualTheReference) {
  if (!fast()) GTEST_SKIP() << "compared from the fast side";
  const std::vector<TokenId> prompt = tokens(200);
  // With a second thread: the split of the work does not matter either.
  const std::unique_ptr<Decoder> reference = testing::open_or_die(
      kModel, {.kernels = KernelChoice::kReference, .block_count = 4, .slot_count = 1, .threads = 2});
  Runner slow(*reference, 0, 0, 512);
  EXPECT_TRUE(same_rows(slow.append(prompt, 64), whole(prompt), 0));
}

INSTANTIATE_TEST_SUITE_P(Kernels, V4Invariance,
                         ::testing::Values(Case{"fast", KernelChoice::kFast, 1},
                                           Case{"reference", KernelChoice::kReference, 99}),
                         [](const auto& i) { return i.param.name; });

}  // namespace
}  // namespace deepinfer
