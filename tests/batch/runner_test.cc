#include "batch/runner.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "batch/batch_files.h"
#include "batch/fake_engine.h"
#include "batch/manifest.h"

namespace deepinfer {
namespace {

using testing::batch_options;
using testing::FakeCodec;
using testing::FakeEngine;
using ::testing::HasSubstr;
using testing::mixed_input;
using testing::read_file;
using testing::read_lines;
using testing::TempFolder;
using testing::write_file;

const std::atomic<bool> kNeverStop{false};

Result<BatchReport> run(const BatchOptions& options, const testing::FakeEngineOptions& engine_options = {},
                        const std::atomic<bool>& stop = kNeverStop) {
  FakeEngine engine(engine_options);
  return run_batch(engine, FakeCodec{}, options, stop);
}

BatchReport run_ok(const BatchOptions& options, const testing::FakeEngineOptions& engine_options = {}) {
  Result<BatchReport> report = run(options, engine_options);
  EXPECT_TRUE(report.ok()) << report.error().to_string();
  return report.ok() ? *report : BatchReport{};
}

std::vector<std::string> sorted(std::vector<std::string> lines) {
  std::sort(lines.begin(), lines.end());
  return lines;
}

// Case 26 and 25: every broken line is one error line that names its place; every other line is answered,
// under its own id.
TEST(BatchRunner, ThousandMixedLinesWithTwentyBrokenOnes) {
  const TempFolder folder;
  write_file(folder.file("in"), mixed_input(1000));
  const BatchReport report =
      run_ok(batch_options(folder.file("in"), folder.file("out")), {.max_delay_us = 3000});
  EXPECT_EQ(report.ok_count, 980);
  EXPECT_EQ(report.failed_count, 20);

  std::map<std::string, int> reasons;
  std::set<std::string> ids;
  int answered = 0;
  for (const std::string& text : read_lines(folder.file("out"))) {
    const Result<Json> line = parse_json(text);
    ASSERT_TRUE(line.ok()) << text;
    const Json& error = *line->find("error");
    if (!error.is_null()) {
      EXPECT_TRUE(line->find("response")->is_null());
      ASSERT_TRUE(error.find("line")->is_int()) << text;
      reasons[error.find("message")->as_string().substr(0, 14)] += 1;
      continue;
    }
    ++answered;
    const std::string& id = line->find("custom_id")->as_string();
    EXPECT_TRUE(ids.insert(id).second) << "twice: " << id;
    EXPECT_THAT(text, HasSubstr("marker " + id + " ")) << "another line's answer under this id";
  }
  EXPECT_EQ(answered, 980);
  EXPECT_EQ(reasons["not valid JSON"], 4);
  EXPECT_EQ(reasons["unknown endpoi"], 2);
  EXPECT_EQ(reasons["the prompt has"], 2);
  EXPECT_EQ(reasons["custom_id \"lin"], 2);
  EXPECT_EQ(reasons["there are no m"], 2);
  EXPECT_EQ(reasons["expected an ar"], 2);
  EXPECT_EQ(reasons["expected a num"], 2);
  EXPECT_EQ(reasons["expected an ob"], 2);
  EXPECT_EQ(reasons["unknown field;"], 2);
}

TEST(BatchRunner, OrderedOutputFollowsTheInputAndHasTheSameLines) {
  const TempFolder folder;
  write_file(folder.file("in"), mixed_input(1000));
  BatchOptions options = batch_options(folder.file("in"), folder.file("ordered"));
  options.ordered = true;
  options.window = 64;
  run_ok(options, {.max_delay_us = 3000});
  run_ok(batch_options(folder.file("in"), folder.file("any")), {.max_delay_us = 3000});
  const std::vector<std::string> ordered = read_lines(folder.file("ordered"));
  const std::vector<std::string> any = read_lines(folder.file("any"));
  EXPECT_NE(ordered, any) << "the fake engine did not shuffle, so this shows nothing";
  EXPECT_EQ(sorted(ordered), sorted(any));
  // Line k of the output belongs to line k of the input.
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    const Json line = *parse_json(ordered[i]);
    if (line.find("error")->is_null()) {
      EXPECT_EQ(line.find("custom_id")->as_string(), fmt::format("line-{}", i + 1));
    } else {
      EXPECT_EQ(line.find("error")->find("line")->as_int(), static_cast<std::int64_t>(i + 1));
    }
  }
}

// The file format published with other tools, word for word.
TEST(BatchRunner, ReadsThePublishedExampleForm) {
  const TempFolder folder;
  write_file(
      folder.file("in"),
      R"({"custom_id": "request-1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": [{"role": "system", "content": "You are helpful."},{"role": "user", "content": "Hello world!"}],"max_completion_tokens": 1000}})");
  const BatchReport report = run_ok(batch_options(folder.file("in"), folder.file("out")));
  EXPECT_EQ(report.ok_count, 1);
  const Json line = *parse_json(read_lines(folder.file("out")).at(0));
  EXPECT_EQ(*line.find("custom_id"), Json("request-1"));
  EXPECT_EQ(*line.find("response")->find("status_code"), Json(200));
  EXPECT_EQ(*line.find("response")->find("body")->find("object"), Json("chat.completion"));
}

TEST(BatchRunner, LinesWithoutAnIdAreNamedByTheirNumber) {
  const TempFolder folder;
  write_file(folder.file("in"),
             "{\"prompt\":\"a\"}\n\n   \n{\"prompt\":\"b\"}\n{\"id\":4,\"prompt\":\"c\"}\r\n");
  BatchOptions options = batch_options(folder.file("in"), folder.file("out"));
  options.ordered = true;
  const BatchReport report = run_ok(options);
  EXPECT_EQ(report.ok_count, 2);
  EXPECT_EQ(report.failed_count, 1);  // line 5 calls itself 4, as line 4 is called
  const std::vector<std::string> lines = read_lines(folder.file("out"));
  EXPECT_EQ(*parse_json(lines.at(0))->find("custom_id"), Json("1"));
  EXPECT_EQ(*parse_json(lines.at(1))->find("custom_id"), Json("4"));
  EXPECT_THAT(lines.at(2), HasSubstr("already used on line 4"));
}

TEST(BatchRunner, AnExistingOutputIsNotTouchedWithoutBeingAsked) {
  const TempFolder folder;
  write_file(folder.file("in"), "{\"prompt\":\"a\"}\n");
  write_file(folder.file("out"), "precious\n");
  BatchOptions options = batch_options(folder.file("in"), folder.file("out"));
  Result<BatchReport> refused = run(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("--overwrite"));
  options.mode = StoreMode::kResume;  // not a run of ours
  refused = run(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("no journal"));
  EXPECT_EQ(read_file(folder.file("out")), "precious\n");
  options.mode = StoreMode::kOverwrite;
  EXPECT_EQ(run_ok(options).ok_count, 1);
  EXPECT_EQ(read_lines(folder.file("out")).size(), 1u);
  options.output = options.input;
  EXPECT_FALSE(run(options).ok());
}

TEST(BatchRunner, ResumingAFinishedRunDoesNothing) {
  const TempFolder folder;
  write_file(folder.file("in"), mixed_input(200));
  BatchOptions options = batch_options(folder.file("in"), folder.file("out"));
  run_ok(options);
  const std::string before = read_file(folder.file("out"));
  options.mode = StoreMode::kResume;
  options.created = 1800000000;  // may differ; the first run's stays in force
  const BatchReport report = run_ok(options);
  EXPECT_EQ(report.ok_count + report.failed_count, 0);
  EXPECT_EQ(report.skipped_count, 200);
  EXPECT_EQ(report.skipped_failed_count, 20);
  EXPECT_EQ(read_file(folder.file("out")), before);
}

// Case 33: a resume continues the same run or says which field differs.
TEST(BatchRunner, ResumeRefusesAnotherRunNamingTheField) {
  const TempFolder folder;
  write_file(folder.file("in"), mixed_input(100));
  BatchOptions options = batch_options(folder.file("in"), folder.file("out"));
  options.identity.set("model_hash", "aaaa");
  run_ok(options);
  options.mode = StoreMode::kResume;

  const auto refusal = [&](const BatchOptions& changed) {
    const Result<BatchReport> report = run(changed);
    return report.ok() ? "accepted" : report.error().to_string();
  };
  BatchOptions changed = options;
  changed.identity.set("model_hash", "bbbb");
  EXPECT_THAT(refusal(changed),
              HasSubstr("field \"/identity/model_hash\": the run has \"aaaa\", now it is \"bbbb\""));
  changed = options;
  changed.defaults.sampling.temperature = 0.5;
  EXPECT_THAT(refusal(changed), HasSubstr("/sampling/temperature"));
  changed = options;
  changed.defaults.sampling.seed = 3;
  EXPECT_THAT(refusal(changed), HasSubstr("/sampling/seed"));
  changed = options;
  changed.ordered = true;
  EXPECT_THAT(refusal(changed), HasSubstr("/ordered"));
  changed = options;
  changed.model_name = "other";
  EXPECT_THAT(refusal(changed), HasSubstr("/model"));
  write_file(folder.file("in2"), mixed_input(120));
  changed = options;
  changed.input = folder.file("in2");
  EXPECT_THAT(refusal(changed), HasSubstr("/input/bytes"));
  // A recorded engine version of another build.
  const std::string manifest = read_file(manifest_path(options.output));
  std::string other = manifest;
  other.replace(other.find("deepinfer-"), 15, "deepinfer-0.0.9");
  write_file(manifest_path(options.output), other);
  EXPECT_THAT(refusal(options), HasSubstr("/engine"));
  write_file(manifest_path(options.output), manifest);
  EXPECT_EQ(refusal(options), "accepted");
}

TEST(BatchRunner, ResumeNoticesAnEditedOutputAndAnEditedInput) {
  const TempFolder folder;
  std::string input = "{\"prompt\":\"" + std::string(200000, ' ') + "\"}\n";  // beyond the sampled ends
  for (int i = 0; i < 50; ++i) input += fmt::format("{{\"prompt\":\"text {:02}\"}}\n", i);
  input += "{\"prompt\":\"" + std::string(200000, ' ') + "\"}\n";
  write_file(folder.file("in"), input);
  BatchOptions options = batch_options(folder.file("in"), folder.file("out"));
  run_ok(options, {.max_context = 1000000});
  options.mode = StoreMode::kResume;

  const std::string output = read_file(folder.file("out"));
  std::string edited = output;
  edited[output.find("text 20")] = 'T';
  write_file(folder.file("out"), edited);
  Result<BatchReport> report = run(options, {.max_context = 1000000});
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.error().message, HasSubstr("was changed"));
  EXPECT_EQ(read_file(folder.file("out")), edited) << "an edited file must not be cut";
  write_file(folder.file("out"), output);

  edited = input;
  edited[input.find("text 20")] = 'T';
  write_file(folder.file("in"), edited);
  report = run(options, {.max_context = 1000000});
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.error().message, HasSubstr("lines that have a result changed"));
}

// --retry-errors computes exactly the failed lines again, also those that failed in the engine.
TEST(BatchRunner, RetryErrorsReplacesErrorLinesOnly) {
  for (const bool ordered : {false, true}) {
    const TempFolder folder;
    write_file(folder.file("in"), mixed_input(400));
    BatchOptions options = batch_options(folder.file("in"), folder.file("out"));
    options.ordered = ordered;
    const BatchReport first = run_ok(options, {.max_delay_us = 500, .fail_every = 5});
    EXPECT_GT(first.failed_count, 40);
    options.mode = StoreMode::kRetryErrors;
    const BatchReport second = run_ok(options, {.max_delay_us = 500});
    EXPECT_EQ(second.failed_count, 20);
    EXPECT_EQ(second.ok_count, first.failed_count - 20);
    EXPECT_EQ(second.skipped_count, first.ok_count);

    BatchOptions fresh = batch_options(folder.file("in"), folder.file("expected"));
    fresh.ordered = ordered;
    run_ok(fresh);
    const auto expected = read_lines(folder.file("expected"));
    const auto actual = read_lines(folder.file("out"));
    if (ordered) {
      EXPECT_EQ(actual, expected);
    } else {
      EXPECT_EQ(sorted(actual), sorted(expected));
    }
    // The journal follows: another resume has nothing to do.
    options.mode = StoreMode::kResume;
    EXPECT_EQ(run_ok(options).skipped_count, 400);
  }
}

// Case 22: requests that fail in the engine end as error lines; none is lost and the batch goes on.
TEST(BatchRunner, EngineFailuresAreErrorLinesAndTheBatchGoesOn) {
  const TempFolder folder;
  write_file(folder.file("in"), mixed_input(1000));
  const BatchReport report =
      run_ok(batch_options(folder.file("in"), folder.file("out")), {.max_delay_us = 500, .fail_every = 7});
  EXPECT_EQ(report.ok_count + report.failed_count, 1000);
  EXPECT_GT(report.failed_count, 100);
  std::int64_t failures = 0;
  for (const std::string& line : read_lines(folder.file("out"))) {
    if (line.find("\"code\":\"out_of_memory\",\"message\":\"injected\"") != std::string::npos) ++failures;
  }
  EXPECT_EQ(failures, report.failed_count - 20);
}

TEST(BatchRunner, StopKeepsWhatIsDoneAndResumeDoesTheRest) {
  for (const bool ordered : {false, true}) {
    const TempFolder folder;
    write_file(folder.file("in"), mixed_input(1000));
    BatchOptions options = batch_options(folder.file("in"), folder.file("out"));
    options.ordered = ordered;
    options.window = 50;
    options.stop_grace_seconds = 0;
    std::atomic<bool> stop{false};
    std::thread stopper([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
      stop = true;
    });
    const Result<BatchReport> report = run(options, {.max_delay_us = 20000}, stop);
    stopper.join();
    ASSERT_TRUE(report.ok());
    EXPECT_TRUE(report->interrupted);
    EXPECT_GT(report->ok_count, 0);
    EXPECT_LT(report->ok_count + report->failed_count, 1000);
    options.mode = StoreMode::kResume;
    options.window = 1024;
    const BatchReport rest = run_ok(options);
    EXPECT_EQ(rest.ok_count + report->ok_count, 980);
    EXPECT_EQ(rest.failed_count + report->failed_count, 20);

    BatchOptions fresh = batch_options(folder.file("in"), folder.file("expected"));
    fresh.ordered = ordered;
    run_ok(fresh);
    if (ordered) {
      EXPECT_EQ(read_file(folder.file("out")), read_file(folder.file("expected")));
    } else {
      EXPECT_EQ(sorted(read_lines(folder.file("out"))), sorted(read_lines(folder.file("expected"))));
    }
  }
}

// A waiting pipe must not keep an interrupted run alive.
TEST(BatchRunner, StopEndsAReaderThatWaitsForAPipe) {
  const TempFolder folder;
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::atomic<bool> stop{false}, ended{false};
  std::thread feeder([&] {
    const int fd = ::open(pipe.c_str(), O_WRONLY);
    const std::string text = "{\"prompt\":\"a\"}\n{\"prompt\":\"half";
    EXPECT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    stop = true;
    for (int i = 0; i < 3000 && !ended; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(ended) << "the run waits for the pipe to be closed";
    ::close(fd);
  });
  const Result<BatchReport> report = run(batch_options(pipe, folder.file("out")), {}, stop);
  ended = true;
  feeder.join();
  ASSERT_TRUE(report.ok()) << report.error().to_string();
  EXPECT_TRUE(report->interrupted);
  EXPECT_EQ(report->ok_count, 1);
  EXPECT_EQ(report->failed_count, 0) << "the half line is no line";
}

// Case 28: the first forward does not wait for the file to be read, and case 23: only a window of lines is
// queued.
TEST(BatchRunner, TheWindowBoundsWhatIsReadAhead) {
  const TempFolder folder;
  write_file(folder.file("in"), mixed_input(20000));
  BatchOptions options = batch_options(folder.file("in"), folder.file("out"));
  options.window = 100;
  FakeEngine engine({.max_delay_us = 200});
  const Result<BatchReport> report = run_batch(engine, FakeCodec{}, options, kNeverStop);
  ASSERT_TRUE(report.ok());
  EXPECT_LE(engine.most_queued(), 100);
  EXPECT_LT(report->seconds_to_first_token, report->seconds / 4)
      << "the run took " << report->seconds << " s";
}

TEST(BatchRunner, AnOverlongLineIsAnErrorLine) {
  const TempFolder folder;
  write_file(folder.file("in"), "{\"prompt\":\"" + std::string(5000, 'x') + "\"}\n{\"prompt\":\"a\"}\n");
  BatchOptions options = batch_options(folder.file("in"), folder.file("out"));
  options.max_line_bytes = 1000;
  options.ordered = true;
  const BatchReport report = run_ok(options);
  EXPECT_EQ(report.ok_count, 1);
  EXPECT_THAT(read_lines(folder.file("out")).at(0), HasSubstr("more than the 1000 allowed"));
}

TEST(BatchRunner, MissingInputIsAnErrorOfTheRun) {
  const TempFolder folder;
  const Result<BatchReport> report = run(batch_options(folder.file("nothing"), folder.file("out")));
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(folder.file("out")));
}

TEST(BatchRunner, TwoRunsCannotWriteTheSameOutput) {
  const TempFolder folder;
  write_file(folder.file("in"), mixed_input(400));
  const BatchOptions options = batch_options(folder.file("in"), folder.file("out"));
  std::thread first([&] { run_ok(options, {.max_delay_us = 2000000}); });
  while (read_file(folder.file("out")).empty()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  BatchOptions second = options;
  second.mode = StoreMode::kResume;
  const Result<BatchReport> report = run(second);
  first.join();
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.error().message, HasSubstr("another run"));
  EXPECT_EQ(read_lines(folder.file("out")).size(), 400u);
}

TEST(BatchRunner, LenientModeAnswersWithWarnings) {
  const TempFolder folder;
  write_file(folder.file("in"), R"({"prompt":"a","max_tokns":3})");
  BatchOptions options = batch_options(folder.file("in"), folder.file("out"));
  options.strict = false;
  EXPECT_EQ(run_ok(options).ok_count, 1);
  EXPECT_THAT(read_file(folder.file("out")), HasSubstr("did you mean \\\"max_tokens\\\"?"));
}

}  // namespace
}  // namespace deepinfer
