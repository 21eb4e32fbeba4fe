// Long sequences: selections that cover everything equal dense attention, borders of windows, groups, blocks
// and selections up to 32,769 positions, loss by position, and Engram rows from memory or from the file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "io/json.h"
#include "io/temp_folder.h"
#include "kernels/registry.h"
#include "kernels/step_fixture.h"
#include "support/golden.h"

namespace deepinfer {
namespace {

using testing::read_file;
using testing::Runner;
using testing::TempFolder;

std::size_t zu(std::int64_t v) {
  return static_cast<std::size_t>(v);
}

std::vector<TokenId> random_tokens(std::uint32_t seed, std::int64_t count, std::int64_t vocab) {
  std::mt19937 rng(seed);
  std::vector<TokenId> out;
  for (std::int64_t i = 0; i < count; ++i)
    out.push_back(static_cast<TokenId>(3 + rng() % (static_cast<std::uint32_t>(vocab) - 3)));
  return out;
}

// Runs tokens[runner.length(), end) in chunks and returns the logits of the last of them.
std::vector<float> advance(Model& model, Runner& runner, const std::vector<TokenId>& tokens, std::int64_t end,
                           std::int64_t chunk) {
  std::vector<float> row;
  while (runner.length() < end) {
    const std::int64_t begin = runner.length(), to = std::min(begin + chunk, end);
    const std::vector<TokenId> part(tokens.begin() + begin, tokens.begin() + to);
    const Chunk c = runner.next_chunk(part, to == end ? to - begin - 1 : to - begin);
    const Status status = model.forward({&c, 1});
    DI_CHECK(status.ok(), status.ok() ? "" : status.error().to_string());
    runner.commit(part);
  }
  row.resize(zu(model.vocab_size()));
  DI_CHECK(model.logits(0, 1, row).ok(), "logits");
  return row;
}

// ---- selections that cover everything ----

class Selection : public ::testing::TestWithParam<KernelChoice> {};

TEST_P(Selection, OfEveryEntryEqualsDenseAttentionBitForBit) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 rng(seed);
  ThreadPool threads(1);
  const OpTable ops = make_op_table(GetParam());
  struct Shape {
    RecordKind window, pool;
    std::int64_t ratio;
  };
  for (const Shape& shape : {Shape{RecordKind::kFp8Split64, RecordKind::kFp8Split64, 4},
                             Shape{RecordKind::kFp8Block32, RecordKind::kFp4Block16, 2},
                             Shape{RecordKind::kFp8Block32, RecordKind::kFp4Block16, 1}}) {
    constexpr std::int64_t kHeads = 4, kDim = 64, kRope = 16, kWindow = 128, kTopK = 1024;
    test::StepFixture f(rng, {{900, 5}, {0, 40}, {255, 3}});
    test::OwnedWindow ring(rng, make_record_format(shape.window, kDim, kRope), 3, kWindow + 16);
    test::OwnedPool pool(rng, make_record_format(shape.pool, kDim, kRope), f.block_count(), shape.ratio);
    const std::vector<float> q = test::random_values(rng, f.step.rows * kHeads * kDim);
    const std::vector<float> fresh = test::random_values(rng, f.step.rows * kDim),
                             sink = test::random_values(rng, kHeads);
    std::vector<std::int32_t> selected(zu(f.step.rows * kTopK)), count(zu(f.step.rows));
    for (std::int64_t t = 0; t < f.step.rows; ++t) {
      count[zu(t)] = static_cast<std::int32_t>((f.step.position[zu(t)] + 1) / shape.ratio);
      std::iota(selected.begin() + t * kTopK, selected.begin() + t * kTopK + count[zu(t)], 0);
    }
    std::vector<float> sparse(q.size()), dense(q.size());
    AttentionOp op{q.data(),    sparse.data(),   kHeads,       kDim,         0.125f,
                   sink.data(), &f.step,         kWindow,      fresh.data(), ring.window,
                   pool.pool,   selected.data(), count.data(), kTopK,        Round::kBf16};
    ops.attention({&threads}, op);
    op.o = dense.data();
    op.selected = nullptr;
    ops.attention({&threads}, op);
    ASSERT_EQ(sparse, dense) << "ratio " << shape.ratio;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Selection, ::testing::Values(KernelChoice::kReference, KernelChoice::kFast),
                         [](const auto& i) {
                           return i.param == KernelChoice::kReference ? "reference" : "fast";
                         });

// A copy of a bundled model whose indexers keep `top_k` entries.
std::string with_top_k(const TempFolder& folder, const std::string& source, const std::string& from,
                       const std::string& to) {
  const std::string target = folder.file(to);
  std::filesystem::create_directory(target);
  for (const auto& entry : std::filesystem::directory_iterator(source)) {
    const std::string name = entry.path().filename().string();
    if (name == "config.json") continue;
    std::filesystem::create_symlink(std::filesystem::absolute(entry.path()), target + "/" + name);
  }
  std::string config = read_file(source + "/config.json");
  const std::string field = "\"index_topk\": " + from;
  const std::size_t at = config.find(field);
  DI_CHECK(at != std::string::npos, "no ", field);
  std::ofstream(target + "/config.json") << config.replace(at, field.size(), "\"index_topk\": " + to);
  return target;
}

// While no more entries exist than an indexer keeps, how many it would keep does not matter; afterwards it
// does.
TEST(Selection, IsEverythingWhileThereAreNoMoreThanTopKEntries) {
  struct Case {
    const char* folder;
    const char *top_k, *larger;
    std::int64_t all_until;  // positions: top_k entries of the densest pool
  };
  for (const Case& c :
       {Case{"models/tiny-v4", "32", "4096", 4 * 32 + 3}, Case{"models/demo-v41", "64", "256", 64}}) {
    const TempFolder folder;
    const ModelOptions options{.block_count = 4, .slot_count = 1, .threads = 1};
    const auto narrow = testing::open_or_die(c.folder, options);
    const auto wide = testing::open_or_die(with_top_k(folder, c.folder, c.top_k, c.larger), options);
    const std::vector<TokenId> tokens = random_tokens(11, 600, narrow->vocab_size());
    const auto vocab = zu(narrow->vocab_size());
    const std::vector<float> a = Runner(*narrow, 0, 0, 1024).append(tokens, 200);
    const std::vector<float> b = Runner(*wide, 0, 0, 1024).append(tokens, 200);
    std::size_t first_different = a.size();
    for (std::size_t i = a.size(); i-- > 0;) {
      if (a[i] != b[i]) first_different = i;
    }
    EXPECT_GE(static_cast<std::int64_t>(first_different / vocab), c.all_until) << c.folder;
    EXPECT_LT(first_different, a.size()) << c.folder << ": the selection never mattered";
  }
}

// ---- borders ----

// The logits at border positions must not depend on where chunks end, and decoding across a border equals
// prefilling across it.
void check_borders(const std::string& folder, const std::vector<std::int64_t>& borders) {
  const std::int64_t length = borders.back() + 2;
  const std::int64_t blocks = (length + kBlockTokens - 1) / kBlockTokens;
  const auto model = testing::open_or_die(
      folder, {.max_rows = 512, .block_count = 2 * blocks, .slot_count = 2, .threads = 1});
  const std::vector<TokenId> tokens = random_tokens(23, length, model->vocab_size());
  Runner even(*model, 0, 0, length), uneven(*model, 1, static_cast<BlockId>(blocks), length);
  for (const std::int64_t border : borders) {
    advance(*model, even, tokens, border - 1, 512);
    // Token by token over the border on one side, in one chunk on the other.
    advance(*model, uneven, tokens, border - 5, 301);
    for (std::int64_t n = border; n <= border + 1; ++n) advance(*model, even, tokens, n, 1);
    const std::vector<float> stepped = advance(*model, even, tokens, border + 2, 1);
    const std::vector<float> at_once = advance(*model, uneven, tokens, border + 2, 512);
    ASSERT_EQ(stepped, at_once) << folder << ", border " << border;
  }
  // A short sequence in the slot and the blocks of the long one.
  even.roll_back(even.length());
  const auto fresh_model = testing::open_or_die(folder, {.block_count = 2, .slot_count = 1, .threads = 1});
  Runner fresh(*fresh_model, 0, 0, 512);
  const std::vector<TokenId> other = random_tokens(29, 140, model->vocab_size());
  ASSERT_EQ(advance(*model, even, other, 140, 512), advance(*fresh_model, fresh, other, 140, 512)) << folder;
}

TEST(Borders, OfWindowsGroupsBlocksAndSelections) {
  check_borders("models/tiny-v4", {32, 128, 144, 256, 512, 1024});
  check_borders("models/demo-v41", {64, 128, 144, 256, 512});
}
TEST(BordersSlow, V4UpTo32769) {
  check_borders("models/tiny-v4", {128, 4096, 8192, 16384, 32768});
}
TEST(BordersSlow, V41UpTo32769) {
  check_borders("models/demo-v41", {128, 4096, 8192, 16384, 32768});
}

// ---- loss by position ----

// Held-out documents, each once by itself and once inside one long text: what a document loses by standing
// far from the beginning must not grow with the distance. Comparing a document with itself leaves only the
// effect of the position.
TEST(LossByPositionSlow, DoesNotRiseAlongALongText) {
  const std::string text = read_file("tests/golden/v41-demo/demo_golden.json");
  const Result<Json> golden = parse_json(text);
  ASSERT_TRUE(golden.ok());
  std::vector<std::vector<TokenId>> documents;
  for (const Json& list : golden->find("docs_ids")->as_array()) {
    auto& ids = documents.emplace_back();
    for (const Json& id : list.as_array()) ids.push_back(static_cast<TokenId>(id.as_int()));
  }
  const auto model = testing::open_or_die(
      "models/demo-v41", {.max_rows = 512, .block_count = 80, .slot_count = 2, .threads = 1});
  const auto vocab = zu(model->vocab_size());
  // Sum of the losses of tokens [from, end) of a document appended to `runner`.
  const auto loss = [&](Runner& runner, const std::vector<TokenId>& ids, std::size_t from) {
    const std::vector<float> logits = runner.append(ids, 512);
    double sum = 0;
    for (std::size_t t = from; t < ids.size(); ++t) {
      const float* row = logits.data() + (t - 1) * vocab;
      const float top = *std::max_element(row, row + vocab);
      double z = 0;
      for (std::size_t i = 0; i < vocab; ++i)
        z += std::exp(static_cast<double>(row[i]) - static_cast<double>(top));
      sum += std::log(z) + static_cast<double>(top) - static_cast<double>(row[ids[t]]);
    }
    return sum;
  };
  constexpr std::size_t kBegin =
      128;  // a document's first tokens are easier or harder with another text before them
  constexpr std::int64_t kBucket = 4096, kLength = 16384;
  std::vector<double> inside(4), alone(4), tokens(4);
  Runner longer(*model, 0, 0, kLength);
  for (const std::vector<TokenId>& document : documents) {
    if (document.size() <= kBegin || longer.length() + static_cast<std::int64_t>(document.size()) > kLength)
      continue;
    const auto bucket = zu(longer.length() / kBucket);
    Runner single(*model, 1, 72, 1024);
    alone[bucket] += loss(single, document, kBegin);
    inside[bucket] += loss(longer, document, kBegin);
    tokens[bucket] += static_cast<double>(document.size() - kBegin);
  }
  for (std::size_t b = 0; b < 4; ++b) {
    ASSERT_GT(tokens[b], 500);
    std::printf("positions from %5lld: %.3f nats a token inside the long text, %.3f alone\n",
                static_cast<long long>(b) * kBucket, inside[b] / tokens[b], alone[b] / tokens[b]);
    EXPECT_LE(inside[b] / tokens[b], alone[b] / tokens[b] + 0.15) << "bucket " << b;
  }
}

// ---- Engram rows ----

TEST(EngramTables, InMemoryAndMappedGiveTheSameBitsAtEveryConcurrency) {
  const ModelOptions mapped{.max_rows = 256, .block_count = 256, .slot_count = 256, .threads = 2};
  ModelOptions copied = mapped;
  copied.engram_in_memory = true;
  const auto a = testing::open_or_die("models/demo-v41", mapped),
             b = testing::open_or_die("models/demo-v41", copied);
  const auto vocab = zu(a->vocab_size());
  for (const std::int64_t sequences : {1, 2, 3, 16, 24, 32, 64, 128, 256}) {
    std::vector<std::vector<float>> last;
    for (Decoder* model : {a.get(), b.get()}) {
      std::vector<Runner> runners;
      std::vector<std::vector<TokenId>> tokens;
      for (std::int64_t s = 0; s < sequences; ++s) {
        runners.emplace_back(*model, static_cast<SlotId>(s), static_cast<BlockId>(s), kBlockTokens);
        tokens.push_back(random_tokens(static_cast<std::uint32_t>(1000 + s), 5, model->vocab_size()));
      }
      std::vector<float> logits(zu(sequences) * vocab);
      for (std::size_t step = 0; step < 5; ++step) {
        std::vector<std::vector<TokenId>> rows;
        std::vector<Chunk> chunks;
        for (const auto& t : tokens) rows.push_back({t[step]});
        for (std::size_t s = 0; s < rows.size(); ++s) chunks.push_back(runners[s].next_chunk(rows[s], 0));
        ASSERT_TRUE(model->forward(chunks).ok());
        for (std::size_t s = 0; s < rows.size(); ++s) runners[s].commit(rows[s]);
      }
      ASSERT_TRUE(model->logits(0, sequences, logits).ok());
      last.push_back(std::move(logits));
    }
    ASSERT_EQ(std::memcmp(last[0].data(), last[1].data(), last[0].size() * sizeof(float)), 0)
        << sequences << " sequences";
    // And the first sequence's row is the one it has alone.
    static std::vector<float> first;
    if (first.empty()) first.assign(last[0].begin(), last[0].begin() + static_cast<std::ptrdiff_t>(vocab));
    ASSERT_EQ(std::memcmp(last[0].data(), first.data(), vocab * sizeof(float)), 0)
        << sequences << " sequences";
  }
}

}  // namespace
}  // namespace deepinfer
