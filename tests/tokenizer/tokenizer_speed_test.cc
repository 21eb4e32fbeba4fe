// Case 28: encoding must never be what a batch waits for. The target is 20 MB/s on one core;
// bench/tokenizer_bench measures it. Here a third of that is asserted, on CPU time, so that a busy machine
// does not fail the test but a quadratic loop does.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>

#include "io/json.h"
#include "io/mmap_file.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr double kMinMegabytesPerSecond = 7;
#else
constexpr double kMinMegabytesPerSecond = 0.3;
#endif

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

TEST(TokenizerSpeed, Case28RealDocumentsEncodeFastOnOneCore) {
  const Tokenizer tokenizer = Tokenizer::load("models/demo-v41/tokenizer.json").value();
  const Json golden =
      parse_json(read_text_file("tests/golden/v41-demo/demo_golden.json", 1 << 24).value()).value();
  std::string text;
  for (const Json& ids : golden.find("docs_ids")->as_array()) {
    for (const Json& id : ids.as_array()) text += tokenizer.token_bytes(static_cast<TokenId>(id.as_int()));
  }
  ASSERT_GT(text.size(), 50000u);
  while (text.size() < 500000) text += text;
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const double start = cpu_seconds();
    const auto ids = tokenizer.encode(text, {.parse_special = true});
    best = std::max(best, static_cast<double>(text.size()) / 1e6 / (cpu_seconds() - start));
    ASSERT_EQ(tokenizer.decode(ids), text);
  }
  RecordProperty("megabytes_per_second", std::to_string(best));
  std::printf("%.1f MB/s\n", best);
  EXPECT_GT(best, kMinMegabytesPerSecond);
}

// One piece of a megabyte: the merge algorithm must not be quadratic in a piece's length.
TEST(TokenizerSpeed, Case28OneHugePieceIsNotQuadratic) {
  const Tokenizer tokenizer = Tokenizer::load("models/demo-v41/tokenizer.json").value();
  std::string text;
  while (text.size() < (1 << 20)) text += "theandofto";
  const double start = cpu_seconds();
  const auto ids = tokenizer.encode(text);
  EXPECT_LT(cpu_seconds() - start, 30.0);
  EXPECT_EQ(tokenizer.decode(ids), text);
}

}  // namespace
}  // namespace deepinfer
