// Thousands of small worlds: random requests over a model and a cache that fail at random moments. Nothing
// may be lost, doubled, stuck, leaked or changed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "engine/harness.h"

namespace deepinfer {
namespace {

using ::testing::IsEmpty;

struct World {
  std::mt19937_64 random;
  explicit World(std::uint64_t seed) : random(seed) {}
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  }
  bool chance(int percent) { return below(100) < percent; }

  Request request(int number, std::int64_t vocab, std::int64_t context) {
    Request r;
    r.id = fmt::format("{}", number);
    const std::int64_t most = chance(25) ? context : 24;
    r.prompt.resize(static_cast<std::size_t>(1 + below(std::min(most, context - 1))));
    for (TokenId& token : r.prompt) token = static_cast<TokenId>(below(vocab));
    SamplingParams& s = r.sampling;
    const std::int64_t room = context - static_cast<std::int64_t>(r.prompt.size());
    s.max_tokens = below(std::min<std::int64_t>(room, 30) + 1);
    s.temperature = chance(50) ? 0 : 1;
    if (chance(20)) s.n = 2;
    if (chance(20)) s.prompt_logprobs = 1;
    if (chance(20)) s.presence_penalty = 1;
    if (chance(15)) {
      r.structured.kind = StructuredOutput::Kind::kRegex;
      r.structured.text = chance(10) ? "bad" : "digits";
    }
    r.priority = static_cast<std::int32_t>(below(3));
    return r;
  }
};

struct Outcome {
  std::int64_t requests = 0, failed = 0, preemptions = 0, step_errors = 0, rows = 0;
};

void simulate(std::uint64_t seed, bool faults, Outcome& total) {
  World world(seed);
  constexpr std::int64_t kVocab = 20;
  FakeModel model({.vocab = kVocab,
                   .blocks = 1 + world.below(4),
                   .slots = 1 + world.below(5),
                   .max_rows = 1 + world.below(80),
                   .eos_bias = static_cast<float>(world.below(4)) - 2});
  EngineOptions options{.max_rows = 1 + world.below(80), .max_chunk_rows = 1 + world.below(60)};
  options.logits_tile_bytes = 4 * kVocab * (1 + world.below(5));
  options.manual = true;
  auto compiler = std::make_shared<FakeCompiler>(kVocab);
  auto engine = Engine::create({&model, nullptr, compiler}, options).value();
  const int rate = faults ? 1 + static_cast<int>(world.below(8)) : 0;
  const auto fault = [&](const char* where) -> Status {
    if (!world.chance(rate)) return {};
    if (world.chance(40)) return Error{ErrorCode::kOutOfMemory, "no memory", where};
    if (world.chance(20)) throw std::bad_alloc();
    return Error{ErrorCode::kInternal, "broken", where};
  };
  model.on_forward = [&](std::span<const Chunk>) { return fault("forward"); };
  model.on_logits = [&] { return fault("logits"); };
  engine->core().scheduler().pools().inject_faults([&] { return world.chance(rate * 3); });

  struct Entry {
    Request request;
    RequestHandle handle;
    bool cancelled = false;
    std::shared_ptr<Collected> got = std::make_shared<Collected>();
  };
  std::vector<Entry> entries;
  const int count = 4 + static_cast<int>(world.below(14));
  std::int64_t steps = 0;
  const auto step = [&] {
    const bool worked = engine->step();
    engine->core().scheduler().check();
    ASSERT_LT(++steps, 100000) << "stuck";
    if (worked && !entries.empty() && faults && world.chance(2)) {
      Entry& victim =
          entries[static_cast<std::size_t>(world.below(static_cast<std::int64_t>(entries.size())))];
      victim.cancelled = true;
      engine->cancel(victim.handle);
    }
  };
  for (int i = 0; i < count; ++i) {
    Entry entry{world.request(i, kVocab, engine->max_context()), 0};
    entry.handle = submit(*engine, entry.request, entry.got, world.chance(50));
    entries.push_back(entry);
    for (std::int64_t k = world.below(6); k > 0; --k) ASSERT_NO_FATAL_FAILURE(step());
  }
  while (engine->stats().requests_done < count) {
    ASSERT_NO_FATAL_FAILURE(step());
    if (engine->stats().preparing > 0) std::this_thread::yield();
  }
  EXPECT_EQ(engine->stats().requests_done, count);
  EXPECT_EQ(engine->stats().blocks_used, 0);
  EXPECT_EQ(engine->stats().running + engine->stats().waiting + engine->stats().preparing, 0);
  for (const Entry& entry : entries) {
    ASSERT_EQ(entry.got->results.size(), 1u) << "request " << entry.request.id;
    const RequestResult& result = entry.got->only();
    ++total.requests;
    if (!result.error_code.empty()) {
      ++total.failed;
      const bool bad_grammar = entry.request.structured.text == "bad";
      EXPECT_TRUE(faults || bad_grammar) << result.error;
      EXPECT_TRUE(result.error_code == "internal" || result.error_code == "out_of_memory" ||
                  (result.error_code == "cancelled" && entry.cancelled) || bad_grammar)
          << result.error_code;
      continue;
    }
    std::unique_ptr<CompiledConstraint> none;
    std::vector<std::string> warnings;
    std::shared_ptr<const CompiledConstraint> grammar;
    if (entry.request.structured.kind != StructuredOutput::Kind::kNone) {
      grammar = FakeCompiler(kVocab).compile(entry.request.structured, warnings).value();
    }
    const auto expected =
        expected_answers(model, nullptr, entry.request, 0, engine->max_context(), grammar.get());
    ASSERT_EQ(result.answers.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(difference(result.answers[i], expected[i]), "")
          << "request " << entry.request.id << " answer " << i;
    }
    if (entry.request.sampling.prompt_logprobs >= 0) {
      EXPECT_EQ(result.prompt_logprobs.size(), entry.request.prompt.size() - 1);
    }
  }
  EXPECT_THAT(model.violations, IsEmpty());
  const EngineStats stats = engine->stats();
  total.preemptions += stats.preemptions;
  total.step_errors += stats.step_errors;
  total.rows += stats.rows;
}

TEST(Simulation, WithoutFaultsEveryRequestGetsItsAnswer) {
  Outcome total;
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    simulate(seed, false, total);
    if (HasFailure()) FAIL();
  }
  EXPECT_GT(total.preemptions, 100) << "these worlds are too roomy to test anything";
  std::printf("  %ld requests, %ld rows, %ld preemptions\n", static_cast<long>(total.requests),
              static_cast<long>(total.rows), static_cast<long>(total.preemptions));
}

TEST(Simulation, FaultsLoseDoubleAndChangeNothing) {
  Outcome total;
  for (std::uint64_t seed = 5001; seed <= 8000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    simulate(seed, true, total);
    if (HasFailure()) FAIL();
  }
  EXPECT_GT(total.step_errors, 1000);
  EXPECT_GT(total.failed, 0);
  EXPECT_LT(total.failed * 2, total.requests) << "most requests must survive faults of single steps";
  std::printf("  %ld requests, %ld failed, %ld step errors, %ld preemptions\n",
              static_cast<long>(total.requests), static_cast<long>(total.failed),
              static_cast<long>(total.step_errors), static_cast<long>(total.preemptions));
}

TEST(Simulation, ACacheThatNeverGivesABlockEndsEveryRequestWithAnError) {
  FakeModel model({.vocab = 20});
  EngineOptions options;
  options.manual = true;
  auto engine = Engine::create({&model, nullptr, nullptr}, options).value();
  engine->core().scheduler().pools().inject_faults([] { return true; });
  auto got = std::make_shared<Collected>();
  for (int i = 0; i < 20; ++i) {
    Request request;
    request.prompt = {1, 2};
    submit(*engine, request, got);
  }
  engine->drain();
  ASSERT_EQ(got->results.size(), 20u);
  for (const RequestResult& result : got->results) EXPECT_EQ(result.error_code, "out_of_memory");
}

// Run k rows, roll j of them back, go on: the same as never having run them.
TEST(Rollback, ContinuingAfterARollbackEqualsNeverHavingRun) {
  std::int64_t rollbacks = 0, total_rows = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    World world(seed);
    FakeModel model({.vocab = 262,
                     .blocks = 2 + world.below(3),
                     .slots = 1 + world.below(3),
                     .max_rows = 8 + world.below(100),
                     .eos_bias = -3});
    EngineOptions options;
    options.manual = true;
    auto compiler = std::make_shared<FakeCompiler>(262);
    auto engine = Engine::create({&model, &small_tokenizer(), compiler}, options).value();
    std::vector<std::tuple<Request, RequestHandle, std::shared_ptr<Collected>>> all;
    for (int i = 0; i < 3; ++i) {
      Request r = world.request(i, 262, engine->max_context());
      r.structured = {};
      if (world.chance(30)) {
        r.structured.kind = StructuredOutput::Kind::kRegex;
        r.structured.after_thinking = world.chance(50);
        if (r.structured.after_thinking) r.sampling.logit_bias = {{3, 5.0f}};
      }
      r.sampling.n = 1;
      r.sampling.max_tokens =
          std::min<std::int64_t>(60, engine->max_context() - static_cast<std::int64_t>(r.prompt.size()));
      r.sampling.logprobs = static_cast<std::int32_t>(world.below(3)) - 1;
      if (world.chance(50)) r.sampling.frequency_penalty = 1.5, r.sampling.repetition_penalty = 1.2;
      if (world.chance(30)) r.sampling.stop = {"ab", "q", "\xe4\xb8\xad"};
      auto got = std::make_shared<Collected>();
      const RequestHandle handle = submit(*engine, r, got);
      all.emplace_back(r, handle, got);
    }
    std::int64_t undone = 0;
    while (engine->stats().requests_done < 3) {
      if (!engine->step()) std::this_thread::yield();
      if (undone < 300 && world.chance(15)) {
        const auto& [request, handle, got] = all[static_cast<std::size_t>(world.below(3))];
        const std::int64_t have = static_cast<std::int64_t>(engine->core().tokens(handle, 0).size());
        const std::int64_t answer = have - static_cast<std::int64_t>(request.prompt.size());
        if (have == 0 || answer <= 0) continue;
        const std::int64_t rows = 1 + world.below(std::min<std::int64_t>(answer, kMaxRollbackRows));
        const Status status = engine->core().rollback(handle, 0, rows);
        ASSERT_TRUE(status.ok()) << status.error().to_string();
        undone += rows;
        ++rollbacks;
        total_rows += rows;
        engine->core().scheduler().check();
      }
    }
    for (const auto& [request, handle, got] : all) {
      std::vector<std::string> warnings;
      std::shared_ptr<const CompiledConstraint> grammar;
      if (request.structured.kind != StructuredOutput::Kind::kNone)
        grammar = compiler->compile(request.structured, warnings).value();
      const auto expected =
          expected_answers(model, &small_tokenizer(), request, 0, engine->max_context(), grammar.get());
      EXPECT_EQ(got->only().error, "");
      EXPECT_EQ(difference(got->only().answers.at(0), expected.at(0)), "") << "request " << request.id;
    }
    EXPECT_THAT(model.violations, IsEmpty());
    if (HasFailure()) FAIL();
  }
  EXPECT_GT(rollbacks, 1000);
  std::printf("  %ld rollbacks of %ld rows\n", static_cast<long>(rollbacks), static_cast<long>(total_rows));
}

TEST(Rollback, MoreThanTheLimitIsRefused) {
  FakeModel model({.vocab = 20, .eos_bias = -50});
  EngineOptions options;
  options.manual = true;
  auto engine = Engine::create({&model, nullptr, nullptr}, options).value();
  Request request;
  request.prompt = {1};
  const RequestHandle handle = submit(*engine, request, std::make_shared<Collected>());
  for (int i = 0; i < 30; ++i) engine->step();
  EXPECT_FALSE(engine->core().rollback(handle, 0, kMaxRollbackRows + 1).ok());
  EXPECT_TRUE(engine->core().rollback(handle, 0, kMaxRollbackRows).ok());
  EXPECT_FALSE(engine->core().rollback(handle + 1, 0, 1).ok());
}

/// Resident bytes of this process.
std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * 4096;
}

TEST(Memory, ResidentSizeIsFlatOver100000ShortRequests) {
  FakeModel model({.vocab = 32, .blocks = 8, .slots = 8, .max_rows = 64});
  EngineOptions options;
  options.manual = true;
  auto engine = Engine::create({&model, nullptr, nullptr}, options).value();
  std::int64_t done = 0, early = 0;
  const auto run = [&](int count) {
    for (int i = 0; i < count; ++i) {
      Request request;
      request.id = "request";
      request.prompt = {static_cast<TokenId>(i % 32), 3, 4};
      request.sampling.max_tokens = 1 + i % 4;
      Sink sink;
      sink.on_done = [&](RequestResult&&) { ++done; };
      engine->submit(std::move(request), std::move(sink));
    }
    engine->drain();
  };
  for (int batch = 0; batch < 100; ++batch) {
    run(1000);
    if (batch == 9) early = resident_bytes();
  }
  EXPECT_EQ(done, 100000);
  const std::int64_t late = resident_bytes();
  std::printf("  resident after 10,000 requests %.2f MB, after 100,000 %.2f MB\n",
              static_cast<double>(early) / 1e6, static_cast<double>(late) / 1e6);
  EXPECT_LE(late, early + early / 50);
}

TEST(Memory, AMillionQueuedRequestsAreServed) {
  FakeModel model({.vocab = 16, .blocks = 64, .slots = 64, .max_rows = 256});
  EngineOptions options;
  options.manual = true;
  auto engine = Engine::create({&model, nullptr, nullptr}, options).value();
  const std::int64_t before = resident_bytes();
  std::int64_t done = 0;
  for (int i = 0; i < 1000000; ++i) {
    Request request;
    request.prompt = {i % 16, i / 16 % 16};
    request.sampling.max_tokens = 1;
    Sink sink;
    sink.on_done = [&](RequestResult&& result) { done += result.error.empty() ? 1 : 0; };
    engine->submit(std::move(request), std::move(sink));
  }
  engine->step();
  EXPECT_GT(engine->stats().waiting, 999000);
  const double bytes_each = static_cast<double>(resident_bytes() - before) / 1e6;
  std::printf("  %.0f bytes a queued request\n", bytes_each);
  EXPECT_LT(bytes_each, 3000);
  engine->drain();
  EXPECT_EQ(done, 1000000);
}

}  // namespace
}  // namespace deepinfer
