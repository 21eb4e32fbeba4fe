// Structured output over a file of schemas with instances, one thread:
//   schema_bench --data FILE.jsonl --tokenizer tokenizer.json [--limit N] [--json OUT] [--thread-clock]
//   [--verbose]
// --thread-clock counts the processor time of the thread, not what a busy neighbour takes away (and about 0.3
// us of system call with each sample). A line of FILE is {"name": ..., "schema": ..., "tests": [{"valid":
// bool, "data": ...}]}. Each instance is written as Python writes it, cut into tokens by the tokenizer, and
// given to a matcher token by token: the mask is computed before each token, the token looked up in it and
// accepted. Reported: schemas that are supported (taken, and right on every instance), false accepts and
// rejects, percentiles of compile time, mask time and accept time, and memory of a compiled grammar. A schema
// that no value satisfies is refused as such and counted apart.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "grammar/json_schema.h"
#include "grammar/matcher.h"
#include "io/json.h"
#include "tokenizer/python_json.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

bool use_thread_clock = false;

// Microseconds of the clock that was asked for.
double now_us() {
  timespec t{};
  clock_gettime(use_thread_clock ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}
double microseconds_since(double start) {
  return now_us() - start;
}

struct Samples {
  std::vector<double> values;
  void add(double v) { values.push_back(v); }
  double at(double quantile) {
    if (values.empty()) return 0;
    const auto rank =
        std::min(values.size() - 1, static_cast<std::size_t>(quantile * static_cast<double>(values.size())));
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(rank), values.end());
    return values[rank];
  }
  double mean() const {
    double sum = 0;
    for (const double v : values) sum += v;
    return values.empty() ? 0 : sum / static_cast<double>(values.size());
  }
};

struct Settings {
  std::string data, tokenizer, json;
  std::size_t limit = SIZE_MAX;
  bool verbose = false;
};

struct Report {
  std::size_t schemas = 0, supported = 0, refused = 0, unsatisfiable = 0, wrong = 0;
  std::size_t valid = 0, invalid = 0, false_accepts = 0, false_rejects = 0, errors = 0, tokens = 0;
  double worst_mask_us = 0;  // of the present schema
  Samples compile_us, mask_us, accept_us, memory_bytes;
};

Result<grammar::VocabularyPtr> read_vocabulary(const Tokenizer& tokenizer) {
  grammar::Vocabulary::Options options;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    options.tokens.emplace_back(tokenizer.token_bytes(id));
    if (tokenizer.is_added(id)) options.special_tokens.push_back(id);
  }
  for (const char* name : {"<｜end▁of▁sentence｜>", "</s>", "<eos>"}) {
    if (const auto id = tokenizer.find_token(name)) options.eos_tokens.push_back(*id);
  }
  if (options.eos_tokens.empty())
    return invalid_argument("the tokenizer has no end token that this program knows");
  return grammar::Vocabulary::create(std::move(options));
}

enum class Verdict { kAccepted, kRejected, kError };

Verdict run_instance(const grammar::GrammarPtr& compiled, const std::vector<TokenId>& tokens,
                     Report& report) {
  grammar::Matcher matcher(compiled);
  std::vector<std::uint32_t> mask(compiled->vocabulary()->mask_words());
  const auto allowed = [&](TokenId id) {
    return (mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1) != 0;
  };
  for (std::size_t i = 0; i <= tokens.size(); ++i) {
    auto start = now_us();
    if (!matcher.compute_mask(mask).ok()) return Verdict::kError;
    report.mask_us.add(microseconds_since(start));
    report.worst_mask_us = std::max(report.worst_mask_us, report.mask_us.values.back());
    ++report.tokens;
    if (i == tokens.size()) break;
    if (!allowed(tokens[i])) return Verdict::kRejected;
    start = now_us();
    if (!matcher.accept_token(tokens[i]).ok()) return Verdict::kError;
    report.accept_us.add(microseconds_since(start));
  }
  return matcher.is_accepting() && allowed(compiled->vocabulary()->eos_tokens()[0]) ? Verdict::kAccepted
                                                                                    : Verdict::kRejected;
}

Status run_line(const std::string& line, const Tokenizer& tokenizer, const grammar::VocabularyPtr& vocabulary,
                const Settings& settings, Report& report) {
  auto parsed = parse_json(line);
  if (!parsed.ok()) return parsed.error();
  const std::string name = parsed->find("name")->as_string();
  const std::string schema = to_json_text(*parsed->find("schema"));
  ++report.schemas;
  const auto start = now_us();
  const auto compiled = grammar::compile_json_schema(schema, vocabulary);
  report.compile_us.add(microseconds_since(start));
  if (!compiled.ok()) {
    const bool empty = compiled.error().message.find("no JSON value") != std::string::npos;
    ++(empty ? report.unsatisfiable : report.refused);
    if (settings.verbose) std::printf("refused %s: %s\n", name.c_str(), compiled.error().to_string().c_str());
    return {};
  }
  bool right = true;
  report.worst_mask_us = 0;
  for (const Json& test : parsed->find("tests")->as_array()) {
    const bool valid = test.find("valid")->as_bool();
    ++(valid ? report.valid : report.invalid);
    const std::string text = python_json_dumps(*test.find("data"));
    const Verdict verdict = run_instance(*compiled, tokenizer.encode(text), report);
    if (verdict == Verdict::kError) ++report.errors;
    if (verdict == (valid ? Verdict::kAccepted : Verdict::kRejected)) continue;
    right = false;
    if (verdict != Verdict::kError) ++(valid ? report.false_rejects : report.false_accepts);
    if (settings.verbose) {
      std::printf("%s %s: %.200s\n",
                  verdict == Verdict::kError ? "error"
                  : valid                    ? "false reject"
                                             : "false accept",
                  name.c_str(), text.c_str());
    }
  }
  ++(right ? report.supported : report.wrong);
  report.memory_bytes.add(static_cast<double>((*compiled)->memory_bytes()));
  if (settings.verbose) {
    std::printf("schema %s: compile %.2f ms, slowest mask %.0f us, %.0f KiB\n", name.c_str(),
                report.compile_us.values.back() / 1e3, report.worst_mask_us,
                report.memory_bytes.values.back() / 1024);
  }
  return {};
}

void print(Report& r, const Settings& settings) {
  std::printf(
      "schemas %zu: supported %zu (%.1f %%), refused %zu, without any value %zu, wrong on an instance %zu\n",
      r.schemas, r.supported,
      100.0 * static_cast<double>(r.supported) / static_cast<double>(std::max<std::size_t>(r.schemas, 1)),
      r.refused, r.unsatisfiable, r.wrong);
  std::printf(
      "instances: %zu valid, %zu invalid; false accepts %zu, false rejects %zu, errors %zu; %zu masks\n",
      r.valid, r.invalid, r.false_accepts, r.false_rejects, r.errors, r.tokens);
  Json out = Json::object();
  const auto row = [&](const char* name, Samples& s, double scale, const char* unit) {
    std::printf(
        "%-14s %-5s p50 %10.2f  p90 %10.2f  p95 %10.2f  p99 %10.2f  p99.9 %10.2f  max %10.2f  mean %10.2f\n",
        name, unit, s.at(0.5) * scale, s.at(0.9) * scale, s.at(0.95) * scale, s.at(0.99) * scale,
        s.at(0.999) * scale, s.at(1.0) * scale, s.mean() * scale);
    Json quantiles = Json::object();
    for (const auto& [key, q] :
         {std::pair{"p50", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}, {"p999", 0.999}, {"max", 1.0}}) {
      quantiles.set(key, s.at(q));
    }
    out.set(name, std::move(quantiles));
  };
  row("compile", r.compile_us, 1e-3, "ms");
  row("mask", r.mask_us, 1, "us");
  row("accept", r.accept_us, 1, "us");
  row("memory", r.memory_bytes, 1.0 / 1024, "KiB");
  for (const auto& [key, value] : {std::pair{"schemas", r.schemas},
                                   {"supported", r.supported},
                                   {"refused", r.refused},
                                   {"unsatisfiable", r.unsatisfiable},
                                   {"wrong", r.wrong},
                                   {"valid", r.valid},
                                   {"invalid", r.invalid},
                                   {"false_accepts", r.false_accepts},
                                   {"false_rejects", r.false_rejects},
                                   {"errors", r.errors},
                                   {"masks", r.tokens}}) {
    out.set(key, static_cast<std::int64_t>(value));
  }
  if (!settings.json.empty()) std::ofstream(settings.json) << to_json_text(out, 1) << "\n";
}

Status run(const Settings& settings) {
  auto tokenizer = Tokenizer::load(settings.tokenizer);
  if (!tokenizer.ok()) return tokenizer.error();
  auto vocabulary = read_vocabulary(*tokenizer);
  if (!vocabulary.ok()) return vocabulary.error();
  std::ifstream in(settings.data);
  if (!in.good()) return not_found("cannot read the data file", settings.data);
  Report report;
  std::string line;
  while (report.schemas < settings.limit && std::getline(in, line))
    DI_TRY(run_line(line, *tokenizer, *vocabulary, settings, report));
  print(report, settings);
  return {};
}

int main_of(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto value = [&]() -> std::string { return i + 1 < argc ? argv[++i] : ""; };
    if (flag == "--data")
      settings.data = value();
    else if (flag == "--tokenizer")
      settings.tokenizer = value();
    else if (flag == "--json")
      settings.json = value();
    else if (flag == "--limit")
      settings.limit = std::strtoull(value().c_str(), nullptr, 10);
    else if (flag == "--thread-clock")
      use_thread_clock = true;
    else if (flag == "--verbose")
      settings.verbose = true;
    else
      return std::fprintf(stderr, "unknown option %s\n", flag.c_str()), 2;
  }
  const Status status = run(settings);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.error().to_string().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) {
  return deepinfer::main_of(argc, argv);
}
