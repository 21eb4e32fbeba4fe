// deepinfer convert: a quantised copy of an unquantised checkpoint.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/common.h"
#include "model/convert.h"

namespace deepinfer::cli {
namespace {

struct Options {
  std::string from, to;
  std::int64_t block = 128;
  std::string experts = "fp4";
};

Status convert(const Options& options) {
  ConvertOptions convert;
  convert.quantization = {options.block, options.experts == "fp4"};
  const bool show = stderr_is_terminal();
  convert.progress = [show](std::int64_t done, std::int64_t total) {
    if (show && (done % 64 == 0 || done == total))
      std::fprintf(stderr, "\r%lld of %lld tensors%s", static_cast<long long>(done),
                   static_cast<long long>(total), done == total ? "\n" : "");
  };
  return convert_checkpoint(options.from, options.to, convert);
}

}  // namespace

void register_convert(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("convert", "Write a quantised copy of a BF16 or F32 checkpoint");
  const auto options = std::make_shared<Options>();
  command->add_option("from", options->from, "Model folder to read")->required();
  command->add_option("to", options->to, "Folder to write; must be new or empty")->required();
  command->add_option("--block", options->block, "Edge of the FP8 tiles: 128 (V4) or 32 (V4.1)")
      ->check(CLI::IsMember({32, 128}))
      ->capture_default_str();
  command->add_option("--experts", options->experts, "Routed experts: fp4 or fp8")
      ->check(CLI::IsMember({"fp4", "fp8"}))
      ->capture_default_str();
  command->callback([options, &exit_code] {
    const Status status = convert(*options);
    exit_code = status.ok() ? kExitOk : report(status.error());
  });
}

}  // namespace deepinfer::cli
