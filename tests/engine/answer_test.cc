// How answers end and stall: stop strings, structured output, the watchdog.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <random>
#include <thread>

#include "engine/harness.h"
#include "engine/stop_strings.h"
#include "engine/structured_compiler.h"

namespace deepinfer {
namespace {

using ::testing::HasSubstr;

// The definition: byte by byte, the first stop string that is a suffix; of two, the longer.
std::pair<std::string, std::string> cut_by_definition(const std::string& text,
                                                      const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    const std::string* best = nullptr;
    for (const std::string& stop : stops) {
      if (text.compare(0, end, text, 0, end) == 0 && end >= stop.size() &&
          text.compare(end - stop.size(), stop.size(), stop) == 0 &&
          (best == nullptr || stop.size() > best->size())) {
        best = &stop;
      }
    }
    if (best != nullptr) return {text.substr(0, end - best->size()), *best};
  }
  return {text, ""};
}

TEST(StopStrings, CutsAreIndependentOfTokenBordersAndNothingOfAStopIsStreamed) {
  for (std::uint64_t seed = 1; seed <= 20000; ++seed) {
    std::mt19937_64 random(seed);
    const auto word = [&](std::size_t most) {
      std::string s(1 + random() % most, ' ');
      for (char& c : s) c = static_cast<char>('a' + random() % 3);
      return s;
    };
    std::vector<std::string> list;
    for (std::size_t i = 1 + random() % 3; i > 0; --i) list.push_back(word(5));
    const StopStrings stops(list);
    const std::string full = word(40);
    const auto [expected, expected_stop] = cut_by_definition(full, list);
    std::string text, streamed, stop;
    for (std::size_t at = 0; at < full.size();) {
      const std::size_t piece = std::min<std::size_t>(1 + random() % 6, full.size() - at);
      const std::size_t before = text.size();
      text += full.substr(at, piece);
      at += piece;
      if (const auto hit = stops.find(text, before)) {
        text.resize(hit->begin);
        stop = *hit->stop;
        break;
      }
      const std::size_t settled = stops.settled(text);
      ASSERT_GE(settled, streamed.size());
      streamed = text.substr(0, settled);
    }
    ASSERT_EQ(text, expected) << "seed " << seed;
    ASSERT_EQ(stop, expected_stop) << "seed " << seed;
    ASSERT_LE(streamed.size(), expected.size()) << "streamed part of a stop string, seed " << seed;
    ASSERT_TRUE(expected.starts_with(streamed));
  }
}

/// A model that writes a given text: `script` by answer position, for one prompt token.
void follow_script(FakeModel& model, const FakeModel& oracle, std::vector<TokenId> prompt,
                   std::vector<TokenId> script) {
  auto rows = std::make_shared<std::map<std::vector<float>, TokenId>>();
  for (const TokenId token : script) {
    (*rows)[oracle.oracle(prompt)] = token;
    prompt.push_back(token);
  }
  model.on_row = [rows](std::uint64_t, std::span<float> row) {
    const auto found = rows->find({row.begin(), row.end()});
    if (found != rows->end()) row[static_cast<std::size_t>(found->second)] = 100;
  };
}

TEST(Answer, StopsAcrossTokensAndKeepsMultibyteTextWhole) {
  FakeModel model({.vocab = 262});
  EngineOptions options;
  options.manual = true;
  auto engine = Engine::create({&model, &small_tokenizer(), nullptr}, options).value();
  Request request;
  request.prompt = {0};
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 12;
  // "h", "the" is one token (261): the stop "hth" lies across the border, behind a two-byte character.
  std::vector<TokenId> script = byte_tokens("\xc3\xa9xh");
  script.push_back(261);
  follow_script(model, FakeModel({.vocab = 262}), request.prompt, script);
  request.sampling.stop = {"zzz", "hth"};
  auto got = std::make_shared<Collected>();
  submit(*engine, request, got, true);
  engine->drain();
  const Answer& answer = got->only().answers[0];
  EXPECT_EQ(answer.text, "\xc3\xa9x");
  EXPECT_EQ(answer.stop_text, "hth");
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  EXPECT_EQ(answer.tokens, script) << "tokens include the one that completed the stop string";
  std::string streamed;
  for (const Delta& delta : got->deltas) {
    EXPECT_NE(delta.text, "\xc3") << "half a character";
    streamed += delta.text;
  }
  EXPECT_EQ(streamed, answer.text);
  // Before min_tokens a stop string is ignored.
  request.sampling.min_tokens = 6;
  EXPECT_EQ(run_one(*engine, request).answers[0].text.substr(0, 7), "\xc3\xa9xhthe");
}

TEST(Answer, AnUnfinishedCharacterAtTheLimitBecomesAReplacement) {
  FakeModel model({.vocab = 262});
  EngineOptions options;
  options.manual = true;
  auto engine = Engine::create({&model, &small_tokenizer(), nullptr}, options).value();
  Request request;
  request.prompt = {0};
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 2;
  follow_script(model, FakeModel({.vocab = 262}), request.prompt, byte_tokens("a\xe4"));
  EXPECT_EQ(run_one(*engine, request).answers[0].text, "a\xef\xbf\xbd");
}

// ---- structured output ----

std::unique_ptr<Engine> structured_engine(FakeModel& model) {
  EngineOptions options;
  options.manual = true;
  return Engine::create({&model, &small_tokenizer(), std::make_shared<FakeCompiler>(262)}, options).value();
}

Request structured_request(const std::string& kind) {
  Request request;
  request.prompt = {0};
  request.structured.kind = StructuredOutput::Kind::kRegex;
  request.structured.text = kind;
  request.sampling.max_tokens = 20;
  return request;
}

TEST(Structured, EveryAnswerIsInTheGrammarAlsoWithIgnoreEosAndMinTokens) {
  FakeModel model({.vocab = 262, .slots = 8});
  auto engine = structured_engine(model);
  std::vector<std::shared_ptr<Collected>> all;
  for (int i = 0; i < 50; ++i) {
    Request request = structured_request("digits");
    request.id = fmt::format("{}", i);
    request.sampling.ignore_eos = i % 2 == 0;
    request.sampling.min_tokens = i % 20;
    request.sampling.n = 1 + i % 2;
    all.push_back(std::make_shared<Collected>());
    submit(*engine, request, all.back());
  }
  engine->drain();
  for (const auto& got : all) {
    EXPECT_EQ(got->only().error, "");
    for (const Answer& answer : got->only().answers) {
      ASSERT_GE(answer.tokens.size(), 4u);
      EXPECT_EQ(answer.tokens.back(), 1) << "ends with the end-of-sequence id";
      EXPECT_TRUE(fake_grammar_accepts(std::span(answer.tokens).first(answer.tokens.size() - 1)));
      EXPECT_EQ(answer.finish, FinishReason::kStop);
    }
  }
}

TEST(Structured, FailuresAreErrorsOfTheirRequestAlone) {
  FakeModel model({.vocab = 262, .slots = 8});
  auto engine = structured_engine(model);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"bad", "structured.schema: unknown keyword"},
      {"throw", "threw: boom"},
      {"dead", "dead end"},
      {"blank", "white space"}};
  std::vector<std::shared_ptr<Collected>> all;
  auto good = std::make_shared<Collected>();
  for (const auto& entry : cases) {
    Request request = structured_request(entry.first);
    request.sampling.logit_bias = {{1, -100.0f}};
    all.push_back(std::make_shared<Collected>());
    submit(*engine, request, all.back());
  }
  Request loose = structured_request("digits");
  loose.structured.best_effort = true;
  submit(*engine, loose, good);
  engine->drain();
  for (std::size_t i = 0; i < cases.size(); ++i)
    EXPECT_THAT(all[i]->only().error, HasSubstr(cases[i].second));
  EXPECT_EQ(good->only().error, "");
  EXPECT_EQ(good->only().warnings, std::vector<std::string>{"loosened"});
}

TEST(Structured, ACompilingGrammarHoldsNobodyUp) {
  FakeModel model({.vocab = 262, .slots = 8, .eos_bias = -50});
  auto engine = structured_engine(model);
  auto slow = std::make_shared<Collected>(), quick = std::make_shared<Collected>();
  submit(*engine, structured_request("slow"), slow);
  Request plain;
  plain.prompt = {0};
  plain.sampling.max_tokens = 5;
  submit(*engine, plain, quick);
  while (engine->step()) {
  }
  EXPECT_EQ(quick->results.size(), 1u);
  EXPECT_EQ(slow->results.size(), 0u);
  EXPECT_EQ(engine->stats().preparing, 1);
  engine->drain();
  EXPECT_EQ(slow->only().error, "");
  // Cancelled while compiling: ends at once, the late grammar is dropped.
  auto cancelled = std::make_shared<Collected>();
  engine->cancel(submit(*engine, structured_request("slow"), cancelled));
  engine->step();
  EXPECT_EQ(cancelled->only().error_code, "cancelled");
  engine->drain();
  std::this_thread::sleep_for(std::chrono::milliseconds(80));
  engine->step();
  EXPECT_EQ(cancelled->results.size(), 1u);
}

TEST(Structured, AfterThinkingTheConstraintStartsBehindTheCloseOfThinking) {
  FakeModel model({.vocab = 262, .slots = 8});
  auto engine = structured_engine(model);
  for (int i = 0; i < 30; ++i) {
    Request request = structured_request("digits");
    request.id = fmt::format("{}", i);
    request.structured.after_thinking = true;
    request.sampling.max_tokens = 200;
    request.sampling.logit_bias = {{3, 4.0f}};
    if (i % 3 == 0) request.prompt = {0, 2, 9, 3};  // thinking closed in the prompt: constrained at once
    const RequestResult result = run_one(*engine, request);
    EXPECT_EQ(result.error, "");
    std::span<const TokenId> tokens = result.answers[0].tokens;
    ASSERT_EQ(tokens.back(), 1) << "cannot end before the structure is complete";
    tokens = tokens.first(tokens.size() - 1);
    if (i % 3 != 0) {
      const auto close = std::find(tokens.begin(), tokens.end(), 3);
      ASSERT_NE(close, tokens.end());
      tokens = tokens.subspan(static_cast<std::size_t>(close - tokens.begin()) + 1);
    }
    EXPECT_TRUE(fake_grammar_accepts(tokens));
  }
}

// The real grammars over a real vocabulary: what comes out is in the language, alone and in company.
TEST(Structured, RegexAndChoiceAnswersAreInTheirLanguage) {
  FakeModel model({.vocab = 270, .slots = 6});  // the logits are wider than the vocabulary
  const TokenId end = 1;
  auto compiler = make_structured_compiler(small_tokenizer(), {&end, 1}, 270).value();
  EngineOptions options;
  options.manual = true;
  auto engine = Engine::create({&model, &small_tokenizer(), compiler}, options).value();
  std::vector<std::shared_ptr<Collected>> regexes, choices;
  for (int i = 0; i < 40; ++i) {
    Request request;
    request.id = fmt::format("{}", i);
    request.prompt = {0, 9};
    request.sampling.max_tokens = 60;
    request.structured.kind = StructuredOutput::Kind::kRegex;
    request.structured.text = "[0-9]{2,4}(-the)?";
    regexes.push_back(std::make_shared<Collected>());
    submit(*engine, request, regexes.back());
    request.structured.kind = StructuredOutput::Kind::kChoice;
    request.structured.choices = {"yes", "no", "\xe4\xb8\xad"};
    choices.push_back(std::make_shared<Collected>());
    submit(*engine, request, choices.back());
  }
  engine->drain();
  std::set<std::string> chosen;
  for (const auto& got : regexes) {
    ASSERT_EQ(got->only().error, "");
    std::string text = got->only().answers[0].text;
    if (text.ends_with("-the")) text.resize(text.size() - 4);
    EXPECT_TRUE(text.size() >= 2 && text.size() <= 4 &&
                text.find_first_not_of("0123456789") == std::string::npos)
        << text;
  }
  for (const auto& got : choices) {
    ASSERT_EQ(got->only().error, "");
    chosen.insert(got->only().answers[0].text);
  }
  EXPECT_THAT(chosen, ::testing::IsSubsetOf({"yes", "no", "\xe4\xb8\xad"}));
  EXPECT_GT(chosen.size(), 1u);
  Request either;
  either.prompt = {0};
  either.structured.kind = StructuredOutput::Kind::kGbnf;
  either.structured.text = "root ::= \"a\" \"b\"+ [c-d]";
  std::string text = run_one(*engine, either).answers.at(0).text;
  EXPECT_TRUE(text.size() >= 3 && text[0] == 'a' && text.find_first_not_of('b', 1) == text.size() - 1)
      << text;
  either.structured.kind = StructuredOutput::Kind::kLark;
  either.structured.text = "start: \"x\" \"y\"";
  EXPECT_EQ(run_one(*engine, either).answers.at(0).text, "xy");
  Request wrong;
  wrong.prompt = {0};
  wrong.structured.kind = StructuredOutput::Kind::kRegex;
  wrong.structured.text = "(a";
  const RequestResult refused = run_one(*engine, wrong);
  EXPECT_EQ(refused.error_code, "invalid_argument");
  EXPECT_THAT(refused.error, ::testing::StartsWith("structured: "));
}

// ---- watchdog ----

TEST(Watchdog, AStallReportsEveryQueueAndEndsTheRequests) {
  FakeModel model({.vocab = 64, .slots = 2, .eos_bias = -50});
  std::atomic<bool> hang = true, submitted = false;
  model.on_forward = [&](std::span<const Chunk>) -> Status {
    while (!submitted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    while (hang && model.forward_calls >= 3) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return {};
  };
  std::mutex mutex;
  std::string report;
  EngineOptions options;
  options.watchdog_seconds = 0.2;
  options.on_stall = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    if (report.empty()) report = text;
    hang = false;
  };
  auto engine = Engine::create({&model, nullptr, nullptr}, options).value();
  auto got = std::make_shared<Collected>();
  for (int i = 0; i < 5; ++i) {
    Request request;
    request.id = fmt::format("job-{}", i);
    request.prompt = {1, 2, 3};
    request.sampling.max_tokens = -1;
    submit(*engine, request, got);
  }
  submitted = true;
  engine->drain();
  ASSERT_EQ(got->results.size(), 5u);
  for (const RequestResult& result : got->results) {
    EXPECT_EQ(result.error_code, "deadline");
    EXPECT_EQ(result.error, "watchdog: no progress for 0.2 s");
  }
  EXPECT_THAT(report, HasSubstr("stage forward"));
  EXPECT_THAT(report, HasSubstr("running: 2"));
  EXPECT_THAT(report, HasSubstr("job-0 answer 0: priority 0, "));
  EXPECT_THAT(report, HasSubstr("waiting: 3"));
  Request after;
  after.prompt = {4};
  after.sampling.max_tokens = 3;
  EXPECT_EQ(run_one(*engine, after).error, "") << "the engine goes on";
}

TEST(WatchdogDeathTest, AHungModelEndsTheProcessWithTheReport) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        FakeModel model({.vocab = 64});
        model.on_forward = [](std::span<const Chunk>) -> Status {
          while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
        };
        EngineOptions options;
        options.watchdog_seconds = 0.1;
        auto engine = Engine::create({&model, nullptr, nullptr}, options).value();
        Request request;
        request.id = "stuck";
        request.prompt = {1};
        submit(*engine, request, std::make_shared<Collected>());
        engine->drain();
      },
      ::testing::ExitedWithCode(kWatchdogExitCode), "watchdog: no progress for 0.1 s(.|\n)*stuck answer 0");
}

TEST(Watchdog, SlowButMovingWorkIsNoStall) {
  FakeModel model({.vocab = 64, .eos_bias = -50});
  model.on_forward = [](std::span<const Chunk>) -> Status {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return {};
  };
  std::atomic<int> stalls = 0;
  EngineOptions options;
  options.watchdog_seconds = 0.25;
  options.on_stall = [&](const std::string&) { ++stalls; };
  auto engine = Engine::create({&model, nullptr, nullptr}, options).value();
  Request request;
  request.prompt = {1};
  request.sampling.max_tokens = 20;
  EXPECT_EQ(run_one(*engine, request).error, "");
  EXPECT_EQ(stalls, 0);
}

}  // namespace
}  // namespace deepinfer
