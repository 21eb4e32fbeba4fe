// deepinfer eval ppl, deepinfer eval determinism: measurements of a model and of the engine.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "api/session.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/options.h"
#include "engine/eval.h"
#include "io/json.h"
#include "io/jsonl.h"

namespace deepinfer::cli {
namespace {

constexpr std::size_t kMaxLineBytes = std::size_t{1} << 28;

struct EvalOptions {
  SessionOptions session;
  std::vector<std::string> files;
  std::int64_t window = 0, max_tokens = 32, repeat = 2;
  bool json = false;
};

/// A text as token ids, behind a beginning-of-sequence token.
Result<std::vector<TokenId>> encode_text(const ModelCodec& codec, std::string text) {
  ApiRequest api;
  api.endpoint = Endpoint::kCompletion;
  api.prompt = std::move(text);
  return codec.encode(api);
}

/// One line of a .jsonl file: {"text": "…"} or {"ids": [0, …]} (taken as they are).
Result<std::vector<TokenId>> read_line(const ModelCodec& codec, std::string_view line) {
  DI_ASSIGN(const Json value, parse_json(line));
  const JsonRef root(value);
  if (const auto text = root.find("text")) {
    DI_ASSIGN(std::string content, text->as_string());
    return encode_text(codec, std::move(content));
  }
  DI_ASSIGN(const JsonRef ids, root.get("ids"));
  DI_ASSIGN(const std::vector<JsonRef> elements, ids.elements());
  std::vector<TokenId> tokens;
  for (const JsonRef& element : elements) {
    DI_ASSIGN(const std::int64_t id, element.as_int(0, INT32_MAX));
    tokens.push_back(static_cast<TokenId>(id));
  }
  return tokens;
}

/// The documents of a file: every line of a .jsonl file, or the whole of any other.
Status read_documents(const ModelCodec& codec, const std::string& file,
                      std::vector<std::vector<TokenId>>& documents) {
  if (!file.ends_with(".jsonl")) {
    std::ifstream stream(file, std::ios::binary);
    if (!stream) return not_found("the file cannot be read", file);
    std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
    DI_ASSIGN(std::vector<TokenId> tokens, encode_text(codec, std::move(text)));
    documents.push_back(std::move(tokens));
    return {};
  }
  DI_ASSIGN(JsonlReader reader, JsonlReader::open(file, kMaxLineBytes));
  while (true) {
    DI_ASSIGN(const std::optional<JsonlLine> line, reader.next());
    if (!line) return {};
    if (line->text.find_first_not_of(" \t") == std::string_view::npos) continue;
    Result<std::vector<TokenId>> tokens = read_line(codec, line->text);
    if (!tokens.ok()) return tokens.error().at(fmt::format("{} line {}", file, line->number));
    documents.push_back(std::move(*tokens));
  }
}

Json bucket_json(const PerplexityBucket& bucket) {
  Json out = Json::object();
  out.set("from", bucket.from).set("to", bucket.to).set("tokens", bucket.tokens);
  out.set("nll", bucket.nll).set("perplexity", bucket.perplexity());
  return out;
}

int run_perplexity(const EvalOptions& options) {
  Result<std::unique_ptr<Session>> session = Session::open(options.session);
  if (!session.ok()) return report(session.error());
  std::vector<std::vector<TokenId>> documents;
  for (const std::string& file : options.files) {
    const Status read = read_documents((*session)->codec(), file, documents);
    if (!read.ok()) return report(read.error());
  }
  std::int64_t total = 0;
  for (const auto& document : documents) total += static_cast<std::int64_t>(document.size());
  PerplexityOptions settings;
  settings.window = options.window;
  if (stderr_is_terminal()) {
    settings.on_progress = [total](std::int64_t done) {
      std::fprintf(stderr, "\r%lld of %lld tokens", static_cast<long long>(done),
                   static_cast<long long>(total));
    };
  }
  const Result<PerplexityResult> result = measure_perplexity((*session)->engine(), documents, settings);
  if (settings.on_progress) std::fputc('\n', stderr);
  if (!result.ok()) return report(result.error());
  if (options.json) {
    Json out = Json::object();
    out.set("model", (*session)->model_name()).set("identity", (*session)->identity());
    out.set("total", bucket_json(result->total)).set("seconds", result->seconds);
    Json buckets = Json::array(), list = Json::array();
    for (const PerplexityBucket& bucket : result->buckets) buckets.push(bucket_json(bucket));
    for (const PerplexityBucket& document : result->documents) list.push(bucket_json(document));
    out.set("buckets", std::move(buckets)).set("documents", std::move(list));
    std::printf("%s\n", to_json_text(out).c_str());
    return kExitOk;
  }
  std::printf("%-18s %10s %12s\n", "positions", "tokens", "perplexity");
  for (const PerplexityBucket& bucket : result->buckets) {
    std::printf("%-18s %10lld %12.3f\n", fmt::format("{}..{}", bucket.from, bucket.to - 1).c_str(),
                static_cast<long long>(bucket.tokens), bucket.perplexity());
  }
  std::printf("%-18s %10lld %12.3f\n", "all", static_cast<long long>(result->total.tokens),
              result->total.perplexity());
  std::printf("%zu documents, %.1f tokens/s\n", documents.size(),
              static_cast<double>(total) / result->seconds);
  return kExitOk;
}

/// What is run when no file of prompts is given: different lengths, languages and kinds of text.
std::vector<std::string> default_prompts() {
  std::string long_text;
  for (int i = 1; i <= 60; ++i) long_text += fmt::format("Line {} holds the number {}. ", i, i * i % 97);
  return {"The",
          "Once upon a time there was a small village by the sea, and in it lived",
          "def area(width, height):\n    return",
          "学而时习之",
          "The quick brown fox jumps over the lazy dog. The quick brown fox",
          long_text};
}

int run_determinism(const EvalOptions& options) {
  Result<std::unique_ptr<Session>> session = Session::open(options.session);
  if (!session.ok()) return report(session.error());
  std::vector<std::string> prompts = options.files.empty() ? default_prompts() : std::vector<std::string>{};
  for (const std::string& file : options.files) {
    std::ifstream stream(file);
    if (!stream) return report(not_found("the file cannot be read", file));
    for (std::string line; std::getline(stream, line);) {
      if (!line.empty()) prompts.push_back(line);
    }
  }
  std::vector<Request> requests;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    Result<std::vector<TokenId>> tokens = encode_text((*session)->codec(), prompts[i]);
    if (!tokens.ok()) return report(tokens.error());
    Request request;
    request.id = fmt::format("prompt {}", i + 1);
    request.prompt = std::move(*tokens);
    request.sampling.max_tokens = options.max_tokens;
    request.sampling.temperature = i % 2 == 0 ? 0 : 1;
    request.sampling.logprobs = 5;
    request.sampling.prompt_logprobs = 0;
    requests.push_back(std::move(request));
  }
  DeterminismOptions settings;
  settings.repeat = options.repeat;
  settings.base.seed = options.session.seed;
  const EngineFactory factory = [&](const EngineOptions& engine) { return (*session)->make_engine(engine); };
  const Result<DeterminismResult> result = check_determinism(factory, requests, settings);
  if (!result.ok()) return report(result.error());
  if (options.json) {
    Json variants = Json::array();
    for (const DeterminismVariant& variant : result->variants) {
      Json entry = Json::object();
      entry.set("name", variant.name).set("compared", variant.compared).set("differing", variant.differing);
      if (variant.differing > 0) entry.set("first_difference", variant.first_difference);
      variants.push(std::move(entry));
    }
    Json out = Json::object();
    out.set("deterministic", result->deterministic()).set("variants", std::move(variants));
    std::printf("%s\n", to_json_text(out).c_str());
  } else {
    std::printf("%zu prompts, each alone, against:\n", requests.size());
    for (const DeterminismVariant& variant : result->variants) {
      std::printf("  %-32s %lld of %lld equal in every bit\n", variant.name.c_str(),
                  static_cast<long long>(variant.compared - variant.differing),
                  static_cast<long long>(variant.compared));
      if (variant.differing > 0) std::printf("    %s\n", variant.first_difference.c_str());
    }
  }
  return result->deterministic() ? kExitOk : kExitSomeFailed;
}

}  // namespace

void register_eval(CLI::App& app, int& exit_code) {
  CLI::App* eval = app.add_subcommand("eval", "Measure a model: perplexity, determinism");
  eval->require_subcommand(1);
  auto options = std::make_shared<EvalOptions>();
  CLI::App* ppl = eval->add_subcommand("ppl", "Perplexity of texts, by position");
  ppl->add_option("files", options->files,
                  "Texts; of a .jsonl file every line: {\"text\": ...} or {\"ids\": [...]}")
      ->required()
      ->type_name("FILE");
  ppl->add_option("--window", options->window, "Cut documents into windows of N tokens (the context)")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  ppl->add_flag("--json", options->json, "Print one JSON object");
  add_model_options(*ppl, options->session);
  ppl->callback([options, &exit_code] { exit_code = run_perplexity(*options); });

  CLI::App* determinism = eval->add_subcommand(
      "determinism", "The same prompts alone, batched, shuffled, chunked: bits compared");
  determinism->add_option("files", options->files, "Prompts, one a line (a built-in set)")->type_name("FILE");
  determinism->add_option("--max-tokens", options->max_tokens, "Answer tokens (32)")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  determinism->add_option("--repeat", options->repeat, "Copies of each prompt in a batch (2)")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  determinism->add_flag("--json", options->json, "Print one JSON object");
  add_model_options(*determinism, options->session);
  determinism->callback([options, &exit_code] { exit_code = run_determinism(*options); });
}

}  // namespace deepinfer::cli
