// The engine with the bundled trained model: bits that do not depend on how a request is run, going back, and
// text that keeps its grammar.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/eval.h"
#include "engine/harness.h"
#include "engine/structured_compiler.h"
#include "model/open_model.h"

namespace deepinfer {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kFolder = "models/demo-v41";

Decoder& demo() {
  static std::unique_ptr<Decoder> model = [] {
    ModelOptions options;
    options.max_rows = 256;
    options.block_count = 80;
    options.slot_count = 65;
    return open_model(kFolder, options).value();
  }();
  return *model;
}

const Tokenizer& demo_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(std::string(kFolder) + "/tokenizer.json").value();
  return tokenizer;
}

std::unique_ptr<Engine> demo_engine(EngineOptions options = {}) {
  options.manual = true;
  const TokenId end = demo().config().eos;
  static const auto compiler =
      make_structured_compiler(demo_tokenizer(), {&end, 1}, demo().vocab_size()).value();
  return Engine::create({&demo(), &demo_tokenizer(), compiler}, options).value();
}

const json& golden() {
  static const json values = json::parse(std::ifstream("tests/golden/v41-demo/demo_golden.json"));
  return values;
}

/// The first `length` tokens of held-out text number `number`.
std::vector<TokenId> held_out(std::size_t number, std::size_t length) {
  std::vector<TokenId> ids = golden()["docs_ids"][number].get<std::vector<TokenId>>();
  ids.resize(length);
  return ids;
}

/// A chat turn as the model was trained on.
std::vector<TokenId> chat(const std::string& text) {
  return demo_tokenizer().encode("<｜begin▁of▁sentence｜><｜User｜>" + text + "<｜Assistant｜></think>",
                                 {.parse_special = true});
}

Request probe(std::size_t number, std::size_t length, std::int64_t max_tokens) {
  Request request;
  request.id = fmt::format("probe {}", number);
  request.prompt = held_out(number, length);
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  request.sampling.temperature = number % 2 == 0 ? 0 : 1;
  request.sampling.logprobs = 3;
  return request;
}

void expect_same(const RequestResult& a, const RequestResult& b, const std::string& what) {
  ASSERT_EQ(a.error, "") << what;
  ASSERT_EQ(b.error, "") << what;
  EXPECT_EQ(difference(a.answers.at(0), b.answers.at(0)), "") << what;
  ASSERT_EQ(a.prompt_logprobs.size(), b.prompt_logprobs.size()) << what;
  for (std::size_t i = 0; i < a.prompt_logprobs.size(); ++i) {
    ASSERT_EQ(a.prompt_logprobs[i].logprob, b.prompt_logprobs[i].logprob) << what << ", prompt row " << i;
  }
}

TEST(DemoModel, TheSameBitsAloneInABatchOf64OthersAndAfterPreemption) {
  Request request = probe(0, 250, 16);  // crosses a block border
  request.sampling.prompt_logprobs = 0;
  auto alone_engine = demo_engine();
  const RequestResult alone = run_one(*alone_engine, request);
  alone_engine.reset();

  auto engine = demo_engine();
  auto got = std::make_shared<Collected>();
  std::mt19937_64 random(1);
  for (int i = 0; i < 64; ++i) {
    if (i == 20) submit(*engine, request, got);
    submit(*engine, probe(random() % 24, 1 + random() % 40, 1 + static_cast<std::int64_t>(random() % 12)),
           std::make_shared<Collected>());
  }
  engine->drain();
  EXPECT_GT(engine->stats().rows, 1000);
  expect_same(alone, got->only(), "in a batch");
  engine.reset();

  // Two blocks: a request of higher priority takes both in the middle of the answer.
  engine = demo_engine({.max_cache_blocks = 2});
  auto displaced = std::make_shared<Collected>();
  submit(*engine, request, displaced);
  while (engine->stats().tokens_out < 9) engine->step();
  Request urgent = probe(3, 300, 3);
  urgent.priority = 1;
  submit(*engine, urgent, std::make_shared<Collected>());
  engine->drain();
  EXPECT_EQ(displaced->only().timing.preemptions, 1);
  expect_same(alone, displaced->only(), "after preemption");
}

TEST(DemoModel, AllWaysOfRunningGiveTheSameBits) {
  std::vector<Request> requests;
  for (const auto& [number, length] :
       {std::pair<std::size_t, std::size_t>{0, 1}, {1, 130}, {2, 31}, {3, 257}, {4, 64}}) {
    requests.push_back(probe(number, length, 6));
    requests.back().sampling.prompt_logprobs = 1;
  }
  DeterminismOptions options;
  options.chunk_rows = {7, 100};
  const EngineFactory factory =
      [](const EngineOptions& engine_options) -> Result<std::unique_ptr<EngineInterface>> {
    return std::unique_ptr<EngineInterface>(demo_engine(engine_options));
  };
  const DeterminismResult result = check_determinism(factory, requests, options).value();
  for (const DeterminismVariant& variant : result.variants) {
    EXPECT_EQ(variant.differing, 0) << variant.name << ": " << variant.first_difference;
    EXPECT_EQ(variant.compared, 5);
  }
}

// Run k rows, roll j back, go on: the same as never having run them. Around compressor groups (2), windows
// (128), blocks (256).
TEST(DemoModel, ContinuingAfterARollbackEqualsNeverHavingRun) {
  const std::uint64_t seed = 17;
  std::mt19937_64 random(seed);
  std::vector<Request> requests;
  std::vector<RequestResult> plain;
  for (const std::size_t length : {1u, 3u, 110u, 119u, 240u, 247u}) {
    requests.push_back(probe(length % 24, length, 36));
    auto engine = demo_engine();
    plain.push_back(run_one(*engine, requests.back()));
  }
  auto engine = demo_engine();
  std::vector<RequestHandle> handles;
  std::vector<std::shared_ptr<Collected>> got;
  for (const Request& request : requests) {
    got.push_back(std::make_shared<Collected>());
    handles.push_back(submit(*engine, request, got.back()));
  }
  std::int64_t dropped = 0;
  while (engine->step()) {
    const std::size_t i = random() % requests.size();
    const std::int64_t answer = static_cast<std::int64_t>(engine->core().tokens(handles[i], 0).size()) -
                                static_cast<std::int64_t>(requests[i].prompt.size());
    if (answer <= 0 || dropped > 400 || random() % 3 != 0) continue;
    const std::int64_t rows =
        1 + static_cast<std::int64_t>(
                random() % static_cast<std::uint64_t>(std::min<std::int64_t>(answer, kMaxRollbackRows)));
    ASSERT_TRUE(engine->core().rollback(handles[i], 0, rows).ok());
    dropped += rows;
  }
  EXPECT_GT(dropped, 100);
  for (std::size_t i = 0; i < requests.size(); ++i)
    expect_same(plain[i], got[i]->only(),
                fmt::format("seed {} prompt of {}", seed, requests[i].prompt.size()));
}

TEST(DemoModel, EveryPromptSplitGivesTheSameBits) {
  Request request = probe(5, 300, 2);
  auto reference_engine = demo_engine();
  const RequestResult reference = run_one(*reference_engine, request);
  reference_engine.reset();
  for (const std::int64_t rows : {1, 2, 127, 128, 129, 255, 299}) {
    auto engine = demo_engine({.max_chunk_rows = rows});
    expect_same(reference, run_one(*engine, request), fmt::format("chunks of {}", rows));
  }
}

TEST(DemoModel, SeedsRepeatAndDiffer) {
  Request request;
  request.prompt = chat("Spell the word garden.");
  request.sampling.max_tokens = 12;
  request.sampling.n = 3;
  request.sampling.seed = 9;
  auto engine = demo_engine();
  const RequestResult a = run_one(*engine, request), b = run_one(*engine, request);
  EXPECT_EQ(a.answers[2].tokens, b.answers[2].tokens);
  EXPECT_NE(a.answers[0].tokens, a.answers[1].tokens);
  EXPECT_EQ(a.seed, 9u);
}

TEST(DemoModel, ConstrainedAnswersKeepTheirSchema) {
  auto engine = demo_engine();
  std::vector<std::shared_ptr<Collected>> all;
  for (int i = 0; i < 6; ++i) {
    Request request;
    request.id = fmt::format("{}", i);
    request.prompt =
        chat("Extract name and age as JSON: Maria Lopez, 34, lives in Oslo and works as a baker.");
    request.sampling.max_tokens = 80;
    request.structured.kind = StructuredOutput::Kind::kJsonSchema;
    request.structured.text =
        R"({"type":"object","properties":{"name":{"type":"string","maxLength":12},"age":{"type":"integer",
      "minimum":0,"maximum":150}},"required":["name","age"],"additionalProperties":false})";
    all.push_back(std::make_shared<Collected>());
    submit(*engine, request, all.back());
    Request free;  // a neighbour without a grammar
    free.prompt = request.prompt;
    free.sampling.max_tokens = 10;
    submit(*engine, free, std::make_shared<Collected>());
  }
  engine->drain();
  for (const auto& got : all) {
    ASSERT_EQ(got->only().error, "");
    const Answer& answer = got->only().answers[0];
    ASSERT_EQ(answer.finish, FinishReason::kStop) << answer.text;
    std::string text = answer.text;
    const json value = json::parse(text, nullptr, false);
    ASSERT_TRUE(value.is_object()) << text;
    EXPECT_EQ(value.size(), 2u);
    EXPECT_TRUE(value["name"].is_string());
    EXPECT_TRUE(value["age"].is_number_integer() && value["age"] >= 0 && value["age"] <= 150) << text;
  }
}

TEST(DemoModel, AWrongSchemaNamesItsKeyword) {
  auto engine = demo_engine();
  Request request;
  request.prompt = chat("x");
  request.structured.kind = StructuredOutput::Kind::kJsonSchema;
  request.structured.text = R"({"type":"object","properties":{"a":{"minimum":"three"}}})";
  EXPECT_THAT(run_one(*engine, request).error, HasSubstr("minimum"));
}

}  // namespace
}  // namespace deepinfer
