// deepinfer complete: goes on with a text.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include "api/session.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/generate.h"
#include "cli/options.h"
#include "cli/signals.h"

namespace deepinfer::cli {
namespace {

struct CompleteOptions {
  SessionOptions session;
  RequestDefaults defaults;
  std::string prompt;
};

int run(CompleteOptions& options) {
  if (options.prompt == "-") {
    options.prompt.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  const std::atomic<bool>& stop = catch_stop_signals();
  Result<std::unique_ptr<Session>> session = Session::open(options.session);
  if (!session.ok()) return report(session.error());
  ApiRequest api;
  api.endpoint = Endpoint::kCompletion;
  api.prompt = options.prompt;
  Result<std::vector<TokenId>> prompt = (*session)->codec().encode(api);
  if (!prompt.ok()) return report(prompt.error());
  Request request;
  request.id = "complete";
  request.prompt = std::move(*prompt);
  request.sampling = options.defaults.sampling;
  const auto print = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  const RequestResult result = generate((*session)->engine(), std::move(request), print, stop);
  std::fputc('\n', stdout);
  if (result.error_code == error_code_name(ErrorCode::kCancelled)) return kExitInterrupted;
  if (!result.error_code.empty()) return report({ErrorCode::kInternal, result.error, ""});
  return kExitOk;
}

}  // namespace

void register_complete(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<CompleteOptions>();
  CLI::App* command = app.add_subcommand("complete", "Go on with a text");
  command->add_option("prompt", options->prompt, "The text; - = read it from stdin")->required();
  add_model_options(*command, options->session);
  add_sampling_options(*command, options->defaults);
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace deepinfer::cli
