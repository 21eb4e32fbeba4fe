// Perplexity of the bundled model over its held-out texts, against the official reference's value; resident
// size over many short requests. Slow.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "engine/eval.h"
#include "model/open_model.h"

namespace deepinfer {
namespace {

TEST(DemoPerplexity, HeldOutTextsWithinThreePerMilleOfTheReference) {
  const auto golden = nlohmann::json::parse(std::ifstream("tests/golden/v41-demo/demo_golden.json"));
  const auto documents = golden["docs_ids"].get<std::vector<std::vector<TokenId>>>();
  ModelOptions options;
  options.block_count = 64;
  const auto model = open_model("models/demo-v41", options).value();
  auto engine = Engine::create({model.get(), nullptr, nullptr}, {}).value();
  const PerplexityResult result = measure_perplexity(*engine, documents, {}).value();
  std::printf("  perplexity %.4f over %ld tokens in %.1f s\n", result.total.perplexity(),
              static_cast<long>(result.total.tokens), result.seconds);
  for (const PerplexityBucket& bucket : result.buckets) {
    std::printf("  positions %ld..%ld: %.3f\n", static_cast<long>(bucket.from),
                static_cast<long>(bucket.to - 1), bucket.perplexity());
  }
  EXPECT_NEAR(result.total.perplexity() / 49.73, 1.0, 0.003);
}

}  // namespace
}  // namespace deepinfer
