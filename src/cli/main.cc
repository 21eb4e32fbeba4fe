// The program `deepinfer`: parses the command line and runs one subcommand.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>

#include "cli/commands.h"
#include "cli/common.h"

int main(int argc, char** argv) {
  using namespace deepinfer::cli;
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is a write error with a message, not a silent death

  CLI::App app("DeepInfer runs DeepSeek-V4.1-Flash and DeepSeek-V4 checkpoints: batches, chat, evaluation.",
               "deepinfer");
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  int exit_code = kExitOk;
  register_run(app, exit_code);
  register_show(app, exit_code);
  register_chat(app, exit_code);
  register_complete(app, exit_code);
  register_eval(app, exit_code);
  register_doctor(app, exit_code);
  register_convert(app, exit_code);
  register_bench(app, exit_code);
  register_grammar(app, exit_code);
  register_inspect(app, exit_code);
  register_plan(app, exit_code);
  register_version(app, exit_code);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? kExitOk : kExitUsage;
  } catch (const std::exception& error) {  // of the standard library or the system: out of memory, for one
    std::fprintf(stderr, "deepinfer: error: %s\n", error.what());
    return kExitFailed;
  }
  return exit_code;
}
