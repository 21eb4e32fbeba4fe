#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <limits>
#include <map>

namespace deepinfer::cli {

void add_model_options(CLI::App& command, SessionOptions& options) {
  command
      .add_option("-m,--model", options.model, "Model folder ($DEEPINFER_MODEL, else the bundled demo model)")
      ->type_name("DIR")
      ->group("Model");
  command
      .add_option("--max-context", options.max_context, "Tokens of one sequence, prompt and answer (32768)")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N")
      ->group("Model");
  command
      .add_option("--cache-tokens", options.cache_tokens, "Cached tokens of all sequences together (65536)")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N")
      ->group("Model");
  command.add_option("--sequences", options.sequences, "Sequences computed at once (32)")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N")
      ->group("Model");
  command.add_option("--rows", options.rows, "Tokens computed in one step (512)")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N")
      ->group("Model");
  command.add_option("--threads", options.threads, "Threads that compute (the physical cores)")
      ->check(CLI::Range(0, 4096))
      ->type_name("N")
      ->group("Model");
  command
      .add_option("--numerics", options.reference,
                  "official: as trained, FP8 activations; reference: fp32 activations (official)")
      ->transform(
          CLI::CheckedTransformer(std::map<std::string, bool>{{"official", false}, {"reference", true}}))
      ->type_name("MODE")
      ->group("Model");
  command.add_option("--seed", options.seed, "Seed of requests that bring none, with their ids (0)")
      ->type_name("N")
      ->group("Model");
}

void add_sampling_options(CLI::App& command, RequestDefaults& defaults) {
  SamplingParams& s = defaults.sampling;
  const auto group = [](CLI::Option* option, const char* type) {
    option->type_name(type)->group("Sampling");
  };
  constexpr double kMax = std::numeric_limits<double>::max();
  group(command.add_option("--temperature", s.temperature, "0 = always the most probable token (1)")
            ->check(CLI::Range(0.0, kMax)),
        "T");
  group(command.add_option("--top-k", s.top_k, "Draw from the K most probable tokens only; 0 = all (0)")
            ->check(CLI::NonNegativeNumber),
        "K");
  group(command.add_option("--top-p", s.top_p, "Draw from the tokens that make up this probability (1)")
            ->check(CLI::Range(1e-9, 1.0)),
        "P");
  group(command
            .add_option("--min-p", s.min_p,
                        "Leave out tokens below this part of the best one's probability (0)")
            ->check(CLI::Range(0.0, 0.999999)),
        "P");
  group(command.add_option("--repetition-penalty", s.repetition_penalty, "Divides seen tokens' logits (1)")
            ->check(CLI::Range(1e-3, 1e3)),
        "X");
  group(command.add_option("--presence-penalty", s.presence_penalty, "Subtracted once from seen tokens (0)")
            ->check(CLI::Range(-2.0, 2.0)),
        "X");
  group(command.add_option("--frequency-penalty", s.frequency_penalty, "Subtracted per occurrence (0)")
            ->check(CLI::Range(-2.0, 2.0)),
        "X");
  group(
      command.add_option("--max-tokens", s.max_tokens, "Length limit of an answer; -1 = the context (2048)")
          ->check(CLI::Range(std::int64_t{-1}, std::numeric_limits<std::int64_t>::max())),
      "N");
  command.add_flag("--thinking", defaults.chat.thinking, "Chat: think before answering")->group("Sampling");
  group(command.add_option("--effort", defaults.chat.effort,
                           "Chat: how long to think: low, high, max or 1..100"),
        "E");
  s.max_tokens = 2048;
}

}  // namespace deepinfer::cli
