// The engine over a FakeModel: every answer equals the one worked out token by token from the oracle,
// whatever else runs beside it, and every way a request can end gives exactly one result.
#include "engine/engine.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <future>
#include <random>
#include <thread>

#include "engine/harness.h"
#include "engine/row_math.h"

namespace deepinfer {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kVocab = 262;

std::unique_ptr<Engine> make_engine(FakeModel& model, EngineOptions options = {},
                                    const Tokenizer* tokenizer = nullptr) {
  options.manual = true;
  auto engine = Engine::create({&model, tokenizer, nullptr}, options);
  DI_CHECK(engine.ok(), engine.ok() ? "" : engine.error().to_string());
  return std::move(engine).value();
}

Request random_request(std::mt19937_64& random, int number, std::int64_t vocab, std::int64_t most_prompt) {
  Request request;
  request.id = fmt::format("r{}", number);
  const std::int64_t length =
      1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most_prompt));
  for (std::int64_t i = 0; i < length; ++i)
    request.prompt.push_back(static_cast<TokenId>(random() % static_cast<std::uint64_t>(vocab)));
  SamplingParams& s = request.sampling;
  s.max_tokens = static_cast<std::int64_t>(random() % 40);
  if (s.max_tokens > 4 && random() % 4 == 0) s.min_tokens = 3;
  s.temperature = random() % 2 ? 0.0 : 0.3 + static_cast<double>(random() % 20) / 10;
  if (random() % 3 == 0) s.top_k = 8;
  if (random() % 3 == 0) s.top_p = 0.8;
  if (random() % 4 == 0) s.repetition_penalty = 1.3;
  if (random() % 4 == 0) s.frequency_penalty = 0.5;
  if (random() % 4 == 0) s.logprobs = static_cast<std::int32_t>(random() % 4);
  if (random() % 5 == 0) s.stop_token_ids = {5, 6, 7};
  if (random() % 5 == 0) s.n = 3;
  if (random() % 3 == 0) s.seed = random();
  request.priority = static_cast<std::int32_t>(random() % 3);
  return request;
}

void expect_same_answers(const RequestResult& result, const std::vector<Answer>& expected,
                         const std::string& what) {
  EXPECT_EQ(result.error, "") << what;
  ASSERT_EQ(result.answers.size(), expected.size()) << what;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(difference(result.answers[i], expected[i]), "") << what << ", answer " << i;
  }
}

TEST(Engine, EveryAnswerEqualsTheOneComputedAloneFromTheDefinition) {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    std::mt19937_64 random(seed);
    FakeModel model({.vocab = kVocab, .blocks = 24, .slots = 8, .max_rows = 96, .eos_bias = 4});
    auto engine = make_engine(model, {.seed = 42}, &small_tokenizer());
    std::vector<std::pair<Request, std::shared_ptr<Collected>>> all;
    for (int i = 0; i < 60; ++i) {
      Request request = random_request(random, i, kVocab, 700);
      all.emplace_back(request, std::make_shared<Collected>());
      submit(*engine, request, all.back().second, i % 2 == 0);
    }
    engine->drain();
    for (const auto& [request, got] : all) {
      ASSERT_EQ(got->results.size(), 1u) << request.id;
      EXPECT_EQ(got->only().id, request.id);
      expect_same_answers(got->only(),
                          expected_answers(model, &small_tokenizer(), request, 42, engine->max_context()),
                          fmt::format("seed {} {}", seed, request.id));
    }
    EXPECT_THAT(model.violations, IsEmpty());
    EXPECT_EQ(engine->stats().blocks_used, 0);
    EXPECT_GT(engine->stats().rows, 0);
  }
}

// The same request among random traffic of all kinds: 1,000 copies, one answer.
TEST(Engine, AThousandCopiesAmongRandomTrafficAreAllEqual) {
  std::mt19937_64 random(9);
  FakeModel model({.vocab = 64, .blocks = 5, .slots = 16, .max_rows = 64, .eos_bias = -1});
  auto engine = make_engine(model);
  Request probe = random_request(random, 0, 64, 100);
  probe.sampling = {};
  probe.sampling.temperature = 1.0;
  probe.sampling.max_tokens = 30;
  probe.sampling.seed = 1234;
  std::vector<std::shared_ptr<Collected>> copies;
  for (int i = 0; i < 1000; ++i) {
    probe.priority = i % 3;
    copies.push_back(std::make_shared<Collected>());
    submit(*engine, probe, copies.back());
    submit(*engine, random_request(random, i, 64, 256), std::make_shared<Collected>());
  }
  engine->drain();
  const auto expected = expected_answers(model, nullptr, probe, 0, engine->max_context());
  for (const auto& copy : copies) expect_same_answers(copy->only(), expected, "a copy");
  EXPECT_GT(engine->stats().preemptions, 0) << "the cache was meant to be too small";
  EXPECT_GT(engine->stats().rows_recomputed, 0);
  EXPECT_THAT(model.violations, IsEmpty());
}

TEST(Engine, ChunkBordersAndRowBudgetsDoNotChangeAnswers) {
  std::mt19937_64 random(4);
  const Request request = [&] {
    Request r = random_request(random, 0, 64, 600);
    r.prompt.resize(601, 3);
    r.sampling = {};
    r.sampling.max_tokens = 20;
    return r;
  }();
  FakeModel model({.vocab = 64, .blocks = 8, .slots = 4, .max_rows = 1024});
  const auto expected = expected_answers(model, nullptr, request, 0, 8 * kBlockTokens);
  for (const std::int64_t rows : {1, 2, 7, 64, 255, 256, 257, 600, 601, 1000}) {
    auto engine = make_engine(model, {.max_rows = rows});
    expect_same_answers(run_one(*engine, request), expected, fmt::format("{} rows a step", rows));
    EXPECT_LE(engine->stats().last_step_rows, rows);
  }
  EXPECT_THAT(model.violations, IsEmpty());
}

TEST(Engine, SeedsAreHonouredEchoedAndDerivedWhenAbsent) {
  FakeModel model({.vocab = 64, .eos_bias = -50});
  auto engine = make_engine(model, {.seed = 5});
  Request request;
  request.prompt = {7};
  request.sampling.max_tokens = 12;
  request.sampling.seed = 111;
  const RequestResult first = run_one(*engine, request), again = run_one(*engine, request);
  EXPECT_EQ(first.seed, 111u);
  EXPECT_EQ(first.answers[0].tokens, again.answers[0].tokens);
  request.sampling.seed = 112;
  EXPECT_NE(run_one(*engine, request).answers[0].tokens, first.answers[0].tokens);
  request.sampling.seed.reset();
  request.id = "a";
  const RequestResult a = run_one(*engine, request);
  request.id = "b";
  const RequestResult b = run_one(*engine, request);
  EXPECT_NE(a.answers[0].tokens, b.answers[0].tokens);
  request.id = "other";
  request.sampling.seed = a.seed;  // the echoed seed repeats the run
  EXPECT_EQ(run_one(*engine, request).answers[0].tokens, a.answers[0].tokens);
}

TEST(Engine, ManyAnswersDifferAndAreIndexed) {
  FakeModel model({.vocab = 64, .eos_bias = -50});
  auto engine = make_engine(model);
  Request request;
  request.prompt = {7, 8, 9};
  request.sampling.max_tokens = 10;
  request.sampling.n = 5;
  const RequestResult result = run_one(*engine, request);
  ASSERT_EQ(result.answers.size(), 5u);
  std::set<std::vector<TokenId>> distinct;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(result.answers[static_cast<std::size_t>(i)].index, i);
    distinct.insert(result.answers[static_cast<std::size_t>(i)].tokens);
  }
  EXPECT_EQ(distinct.size(), 5u);
  EXPECT_EQ(result.usage.prompt_tokens, 3);
  EXPECT_EQ(result.usage.completion_tokens, 50);
}

TEST(Engine, EndOfSequenceStopIdsAndLimits) {
  FakeModel model({.vocab = 64, .eos_bias = 40});
  auto engine = make_engine(model);
  Request request;
  request.prompt = {7};
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 6;
  RequestResult result = run_one(*engine, request);
  EXPECT_EQ(result.answers[0].tokens, std::vector<TokenId>{1});
  EXPECT_EQ(result.answers[0].finish, FinishReason::kStop);
  request.sampling.min_tokens = 4;
  result = run_one(*engine, request);
  EXPECT_EQ(result.answers[0].tokens.size(), 5u) << "four others, then the end";
  EXPECT_EQ(result.answers[0].tokens.back(), 1);
  request.sampling.min_tokens = 0;
  request.sampling.ignore_eos = true;
  result = run_one(*engine, request);
  EXPECT_EQ(result.answers[0].tokens, std::vector<TokenId>(6, 1));
  EXPECT_EQ(result.answers[0].finish, FinishReason::kLength);
  request.sampling.stop_token_ids = {1};
  EXPECT_EQ(run_one(*engine, request).answers[0].finish, FinishReason::kStop)
      << "a stop id is one, whatever ignore_eos says";
  request.sampling.max_tokens = 0;
  result = run_one(*engine, request);
  EXPECT_THAT(result.answers[0].tokens, IsEmpty());
  EXPECT_EQ(result.answers[0].finish, FinishReason::kLength);
}

TEST(Engine, UnlimitedAnswersEndWithTheContext) {
  FakeModel model({.vocab = 64, .blocks = 1, .slots = 1, .eos_bias = -50});
  auto engine = make_engine(model, {.max_context = 100});
  Request request;
  request.prompt = std::vector<TokenId>(40, 3);
  const RequestResult result = run_one(*engine, request);
  EXPECT_EQ(result.answers[0].tokens.size(), 60u);
  EXPECT_EQ(result.answers[0].finish, FinishReason::kLength);
}

TEST(Engine, ARequestThatCanNeverFitIsRefusedWithTheLargestContext) {
  FakeModel model({.vocab = 64, .blocks = 2, .slots = 2});
  auto engine = make_engine(model);
  EXPECT_EQ(engine->max_context(), 512);
  Request request;
  request.prompt = std::vector<TokenId>(513, 3);
  EXPECT_THAT(run_one(*engine, request).error, HasSubstr("the largest context here is 512 tokens"));
  request.prompt.resize(500);
  request.sampling.max_tokens = 13;
  const RequestResult result = run_one(*engine, request);
  EXPECT_EQ(result.error_code, "invalid_argument");
  EXPECT_THAT(result.error, HasSubstr("max_tokens: 500 prompt tokens and 13 answer tokens do not fit"));
  request.sampling.max_tokens = 12;
  request.sampling.ignore_eos = true;
  EXPECT_EQ(run_one(*engine, request).answers[0].tokens.size(), 12u);
}

TEST(Engine, WrongParametersAreRefusedByName) {
  FakeModel model({.vocab = 64});
  auto engine = make_engine(model);
  const double nan = std::nan("");
  const std::vector<std::pair<std::string, std::function<void(Request&)>>> cases = {
      {"prompt", [](Request& r) { r.prompt.clear(); }},
      {"prompt", [](Request& r) { r.prompt = {64}; }},
      {"prompt", [](Request& r) { r.prompt = {-1}; }},
      {"temperature", [](Request& r) { r.sampling.temperature = -1; }},
      {"temperature", [&](Request& r) { r.sampling.temperature = nan; }},
      {"top_k", [](Request& r) { r.sampling.top_k = -1; }},
      {"top_p", [](Request& r) { r.sampling.top_p = 0; }},
      {"top_p", [&](Request& r) { r.sampling.top_p = nan; }},
      {"min_p", [](Request& r) { r.sampling.min_p = 1; }},
      {"repetition_penalty", [](Request& r) { r.sampling.repetition_penalty = 0; }},
      {"presence_penalty", [](Request& r) { r.sampling.presence_penalty = 3; }},
      {"frequency_penalty", [](Request& r) { r.sampling.frequency_penalty = -3; }},
      {"logit_bias",
       [](Request& r) {
         r.sampling.logit_bias = {{99, 1.0f}};
       }},
      {"logit_bias",
       [](Request& r) {
         r.sampling.logit_bias = {{9, INFINITY}};
       }},
      {"n", [](Request& r) { r.sampling.n = 0; }},
      {"n", [](Request& r) { r.sampling.n = 1000000; }},
      {"logprobs", [](Request& r) { r.sampling.logprobs = 21; }},
      {"prompt_logprobs", [](Request& r) { r.sampling.prompt_logprobs = -2; }},
      {"stop", [](Request& r) { r.sampling.stop = {""}; }},
      {"stop", [](Request& r) { r.sampling.stop = {"x"}; }},  // no tokenizer here
      {"stop_token_ids", [](Request& r) { r.sampling.stop_token_ids = {64}; }},
      {"max_tokens", [](Request& r) { r.sampling.max_tokens = -2; }},
      {"max_tokens", [](Request& r) { r.sampling.max_tokens = INT64_MAX; }},
      {"min_tokens", [](Request& r) { r.sampling.max_tokens = 3, r.sampling.min_tokens = 4; }},
      {"structured", [](Request& r) { r.structured.kind = StructuredOutput::Kind::kJsonObject; }},
  };
  for (const auto& [field, spoil] : cases) {
    Request request;
    request.prompt = {5};
    spoil(request);
    const RequestResult result = run_one(*engine, request);
    EXPECT_THAT(result.error, ::testing::StartsWith(field + ": ")) << field;
    EXPECT_THAT(result.answers, IsEmpty());
  }
  EXPECT_EQ(engine->stats().rows, 0);
  EXPECT_EQ(engine->stats().requests_failed, static_cast<std::int64_t>(cases.size()));
}

TEST(Engine, StreamedPiecesJoinToTheAnswer) {
  std::mt19937_64 random(21);
  FakeModel model({.vocab = kVocab, .blocks = 8, .slots = 8, .max_rows = 64, .eos_bias = 2});
  auto engine = make_engine(model, {}, &small_tokenizer());
  for (int i = 0; i < 200; ++i) {
    Request request = random_request(random, i, kVocab, 20);
    request.sampling.stop = {"ab", "\xc3\xa9"};
    auto got = std::make_shared<Collected>();
    submit(*engine, request, got, true);
    engine->drain();
    for (const Answer& answer : got->only().answers) {
      std::string text;
      std::vector<TokenId> tokens;
      std::size_t logprobs = 0;
      for (const Delta& delta : got->deltas) {
        if (delta.index != answer.index) continue;
        text += delta.text;
        tokens.insert(tokens.end(), delta.tokens.begin(), delta.tokens.end());
        logprobs += delta.logprobs.size();
      }
      EXPECT_EQ(text, answer.text);
      EXPECT_EQ(tokens, answer.tokens);
      EXPECT_EQ(logprobs, answer.logprobs.size());
    }
  }
}

TEST(Engine, PromptLogprobsEqualTheOracleInBoundedMemory) {
  FakeModel model({.vocab = 64, .blocks = 4, .slots = 2, .max_rows = 100});
  auto engine = make_engine(model, {.logits_tile_bytes = 64 * 4 * 7});  // seven rows at a time
  std::mt19937_64 random(6);
  Request request = random_request(random, 0, 64, 1);
  request.sampling = {};
  request.sampling.max_tokens = 2;
  request.sampling.prompt_logprobs = 2;
  for (int i = 0; i < 350; ++i) request.prompt.push_back(static_cast<TokenId>(random() % 64));
  const RequestResult result = run_one(*engine, request);
  ASSERT_EQ(result.prompt_logprobs.size(), request.prompt.size() - 1);
  for (std::size_t i = 0; i + 1 < request.prompt.size(); ++i) {
    const std::vector<float> row = model.oracle(std::span(request.prompt).first(i + 1));
    const TokenLogprob expected = row_logprobs(row, scan_row(row).max, request.prompt[i + 1], 2);
    EXPECT_EQ(result.prompt_logprobs[i].token, request.prompt[i + 1]);
    EXPECT_EQ(result.prompt_logprobs[i].logprob, expected.logprob);
    EXPECT_EQ(result.prompt_logprobs[i].top, expected.top);
  }
  EXPECT_EQ(model.most_logits, 7);
  EXPECT_THAT(model.violations, IsEmpty());
}

TEST(Engine, PromptLogprobsSurvivePreemptionOnceEach) {
  FakeModel model({.vocab = 64, .blocks = 4, .slots = 4, .max_rows = 128});
  auto engine = make_engine(model);
  std::vector<std::shared_ptr<Collected>> all;
  std::mt19937_64 random(8);
  Request request = random_request(random, 0, 64, 1);
  request.prompt.assign(500, 9);
  request.sampling = {};
  request.sampling.max_tokens = 40;
  request.sampling.ignore_eos = true;
  request.sampling.prompt_logprobs = 0;
  for (int i = 0; i < 3; ++i) {
    request.priority = i;  // each displaces the one before
    all.push_back(std::make_shared<Collected>());
    submit(*engine, request, all.back());
    for (int k = 0; k < 5; ++k) engine->step();
  }
  engine->drain();
  EXPECT_GT(engine->stats().preemptions, 0);
  for (const auto& got : all) {
    ASSERT_EQ(got->only().prompt_logprobs.size(), 499u);
    for (std::size_t i = 0; i < 499; ++i)
      EXPECT_EQ(got->only().prompt_logprobs[i].logprob, all[0]->only().prompt_logprobs[i].logprob);
  }
}

TEST(Engine, BadLogitsEndTheirRequestAndNamePlaceAndReason) {
  FakeModel model({.vocab = 64, .eos_bias = -50});
  auto engine = make_engine(model);
  Request good, bad;
  good.prompt = {1, 2, 3};
  bad.prompt = {4, 5, 6};
  good.sampling.max_tokens = bad.sampling.max_tokens = 5;
  const std::vector<float> victim = model.oracle(bad.prompt);
  for (const auto& [value, words] :
       {std::pair{std::nanf(""), "not finite"}, {INFINITY, "not finite"}, {0.0f, "all equal"}}) {
    model.on_row = [&](std::uint64_t, std::span<float> row) {
      if (!std::equal(row.begin(), row.end(), victim.begin())) return;
      if (std::isfinite(value)) std::fill(row.begin(), row.end(), value);
      row[17] = value;
    };
    auto got_good = std::make_shared<Collected>(), got_bad = std::make_shared<Collected>();
    submit(*engine, good, got_good);
    submit(*engine, bad, got_bad);
    engine->drain();
    expect_same_answers(got_good->only(), expected_answers(model, nullptr, good, 0, engine->max_context()),
                        "the neighbour");
    EXPECT_EQ(got_bad->only().error_code, "internal");
    EXPECT_THAT(got_bad->only().error, HasSubstr("logits at position 2 of answer 0"));
    EXPECT_THAT(got_bad->only().error, HasSubstr(words));
    EXPECT_EQ(got_bad->only().answers[0].finish, FinishReason::kError);
  }
}

TEST(Engine, AModelErrorEndsTheCulpritAlone) {
  FakeModel model({.vocab = 64, .blocks = 16, .slots = 8, .eos_bias = -50});
  auto engine = make_engine(model);
  model.on_forward = [](std::span<const Chunk> chunks) -> Status {
    for (const Chunk& chunk : chunks) {
      for (const TokenId token : chunk.tokens) {
        if (token == 13 && chunk.start < 3)
          return Error{ErrorCode::kInternal, "value not finite", "layer 3 attention"};
      }
    }
    return {};
  };
  std::vector<std::pair<Request, std::shared_ptr<Collected>>> all;
  for (int i = 0; i < 6; ++i) {
    Request request;
    request.id = fmt::format("r{}", i);
    request.prompt = {3, i == 4 ? 13 : 5, 7};
    request.sampling.max_tokens = 8;
    all.emplace_back(request, std::make_shared<Collected>());
    submit(*engine, request, all.back().second);
  }
  engine->drain();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i == 4) {
      EXPECT_EQ(all[i].second->only().error, "layer 3 attention: value not finite");
      continue;
    }
    expect_same_answers(all[i].second->only(),
                        expected_answers(model, nullptr, all[i].first, 0, engine->max_context()), "innocent");
  }
}

// Memory that runs out: the plan shrinks until it fits, the answers are the same; a single row that does not
// fit ends its request.
TEST(Engine, OutOfMemoryShrinksThePlan) {
  FakeModel model({.vocab = 64, .blocks = 16, .slots = 8, .max_rows = 512});
  auto engine = make_engine(model);
  std::int64_t allowed = 40;
  model.on_forward = [&](std::span<const Chunk> chunks) -> Status {
    std::int64_t rows = 0;
    for (const Chunk& chunk : chunks) rows += static_cast<std::int64_t>(chunk.tokens.size());
    if (rows > allowed) throw std::bad_alloc();
    return {};
  };
  std::mt19937_64 random(3);
  std::vector<std::pair<Request, std::shared_ptr<Collected>>> all;
  for (int i = 0; i < 20; ++i) {
    all.emplace_back(random_request(random, i, 64, 400), std::make_shared<Collected>());
    submit(*engine, all.back().first, all.back().second);
  }
  engine->drain();
  for (const auto& [request, got] : all) {
    expect_same_answers(got->only(), expected_answers(model, nullptr, request, 0, engine->max_context()),
                        request.id);
  }
  EXPECT_GT(engine->stats().step_errors, 0);
  allowed = 0;
  Request hopeless;
  hopeless.prompt = {1, 2, 3};
  EXPECT_EQ(run_one(*engine, hopeless).error_code, "out_of_memory");
}

TEST(Engine, CancelledRequestsEndOnceAndFreeEverything) {
  FakeModel model({.vocab = 64, .blocks = 8, .slots = 2, .eos_bias = -50});
  auto engine = make_engine(model);
  Request request;
  request.prompt = {1, 2, 3};
  request.sampling.n = 3;  // one of the three waits for a slot
  auto got = std::make_shared<Collected>();
  const RequestHandle handle = submit(*engine, request, got);
  for (int i = 0; i < 5; ++i) engine->step();
  engine->cancel(handle);
  engine->cancel(handle);
  engine->drain();
  ASSERT_EQ(got->results.size(), 1u);
  EXPECT_EQ(got->only().error_code, "cancelled");
  ASSERT_EQ(got->only().answers.size(), 3u);
  EXPECT_EQ(got->only().answers[0].finish, FinishReason::kCancelled);
  EXPECT_GT(got->only().answers[0].tokens.size(), 0u) << "what was produced is kept";
  EXPECT_EQ(engine->stats().blocks_used, 0);
  EXPECT_EQ(engine->stats().requests_cancelled, 1);
  engine->cancel(handle);
  engine->cancel(999);
  engine->drain();
  EXPECT_EQ(got->results.size(), 1u);
}

TEST(Engine, SinksMaySubmitAndCancel) {
  FakeModel model({.vocab = 64, .eos_bias = -50});
  auto engine = make_engine(model);
  int done = 0;
  std::function<void(int)> chain = [&](int left) {
    Request request;
    request.prompt = {2};
    request.sampling.max_tokens = 3;
    Sink sink;
    sink.on_done = [&, left](RequestResult&&) {
      ++done;
      if (left > 0) chain(left - 1);
    };
    engine->submit(std::move(request), std::move(sink));
  };
  chain(10);
  engine->drain();
  EXPECT_EQ(done, 11);
}

TEST(Engine, ThreadsMaySubmitAtOnce) {
  FakeModel model({.vocab = 64, .blocks = 16, .slots = 8});
  auto engine = Engine::create({&model, nullptr, nullptr}, {}).value();
  std::atomic<int> done = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        Request request;
        request.id = fmt::format("{}-{}", t, i);
        request.prompt = {t, i % 64, 9};
        request.sampling.max_tokens = 4;
        Sink sink;
        sink.on_done = [&, id = request.id](RequestResult&& result) {
          done += result.id == id && result.error.empty() ? 1 : 1000;
        };
        const RequestHandle handle = engine->submit(std::move(request), std::move(sink));
        if (i % 50 == 7) (void)engine->stats();
        if (i % 50 == 8) engine->cancel(handle + 100000);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  engine->drain();
  EXPECT_EQ(done, 400);
  EXPECT_EQ(engine->stats().requests_done, 400);
  EXPECT_THAT(model.violations, IsEmpty());
}

TEST(Engine, DestructionEndsOpenRequestsAlsoThoseSubmittedByTheirSinks) {
  FakeModel model({.vocab = 64, .blocks = 4096, .eos_bias = -50});
  std::vector<std::string> codes;
  {
    auto engine = Engine::create({&model, nullptr, nullptr}, {}).value();
    const auto request = [&](Sink sink) {
      Request r;
      r.prompt = {1};
      engine->submit(std::move(r), std::move(sink));
    };
    const auto note = [&](RequestResult&& result) { codes.push_back(result.error_code); };
    request({nullptr, [&](RequestResult&& result) {
               codes.push_back(result.error_code);
               request({nullptr, note});
             }});
  }
  EXPECT_EQ(codes, (std::vector<std::string>{"cancelled", "cancelled"}));
}

TEST(Engine, HigherPriorityGoesFirstAndFifoInside) {
  FakeModel model({.vocab = 64, .blocks = 4, .slots = 1, .eos_bias = -50});
  auto engine = make_engine(model);
  std::vector<std::string> order;
  for (const auto& [id, priority] :
       {std::pair{"low1", 0}, {"low2", 0}, {"high1", 5}, {"mid", 2}, {"high2", 5}}) {
    Request request;
    request.id = id;
    request.priority = priority;
    request.prompt = {1};
    request.sampling.max_tokens = 2;
    Sink sink;
    sink.on_done = [&](RequestResult&& result) { order.push_back(result.id); };
    engine->submit(std::move(request), std::move(sink));
  }
  engine->drain();
  EXPECT_EQ(order, (std::vector<std::string>{"high1", "high2", "mid", "low1", "low2"}));
}

TEST(Engine, StatisticsAddUp) {
  FakeModel model({.vocab = 64, .blocks = 4, .slots = 4, .eos_bias = -50});
  auto engine = make_engine(model);
  Request request;
  request.prompt = std::vector<TokenId>(10, 2);
  request.sampling.max_tokens = 5;
  auto got = std::make_shared<Collected>();
  submit(*engine, request, got);
  engine->step();
  EngineStats stats = engine->stats();
  EXPECT_EQ(stats.running, 1);
  EXPECT_EQ(stats.blocks_used, 1);
  EXPECT_EQ(stats.cache_bytes_used, 4096 + 512);
  engine->drain();
  stats = engine->stats();
  EXPECT_EQ(stats.rows, 10 + 4) << "the last token is never computed";
  EXPECT_EQ(stats.tokens_in, 10);
  EXPECT_EQ(stats.tokens_out, 5);
  EXPECT_EQ(stats.requests_done, 1);
  EXPECT_EQ(stats.stage_seconds.size(), 7u);
  const RequestTiming& timing = got->only().timing;
  EXPECT_GT(timing.first_token, 0);
  EXPECT_GE(timing.first_token, timing.queued);
  EXPECT_GE(timing.total, timing.first_token);
}

}  // namespace
}  // namespace deepinfer
