// deepinfer version
#include <CLI/CLI.hpp>
#include <cstdio>

#include "api/version.h"
#include "cli/commands.h"
#include "cli/common.h"

namespace deepinfer::cli {

void register_version(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("version", "Print the version and how it was built");
  command->callback([&exit_code] {
    std::printf("deepinfer %s (%s)\n", version().data(), build_description().c_str());
    exit_code = kExitOk;
  });
}

}  // namespace deepinfer::cli
