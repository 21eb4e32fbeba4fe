// deepinfer plan: what a run would need, before anything is loaded.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>

#include "base/memory.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "io/checkpoint.h"
#include "model/report.h"

namespace deepinfer::cli {
namespace {

struct Options {
  std::string path;
  std::string mode = "official";
  std::string memory;
  bool json = false;
  PlanRequest request;
};

Result<Numerics> numerics_of(const std::string& mode) {
  if (mode == "official") return Numerics::official();
  if (mode == "reference") return Numerics::reference(true);
  if (mode == "reference-unrounded") return Numerics::reference(false);
  return invalid_argument(
      "unknown mode \"" + mode + "\"; there are official, reference and reference-unrounded", "--mode");
}

Status plan(Options options) {
  const bool folder = std::filesystem::is_directory(options.path);
  Result<std::string> text =
      folder ? read_config_text(options.path) : read_text_file(options.path, std::size_t{16} << 20);
  if (!text.ok()) return text.error();
  const Result<ModelConfig> config = parse_config(*text);
  if (!config.ok()) return config.error().at(options.path);
  DI_ASSIGN(options.request.numerics, numerics_of(options.mode));
  if (options.memory.empty()) {
    options.request.memory_bytes = available_memory_bytes();
  } else {
    DI_ASSIGN(options.request.memory_bytes, parse_size(options.memory));
  }
  DI_ASSIGN(const MemoryPlan result, plan_memory(*config, options.request));
  if (options.json)
    std::printf("%s\n", to_json_text(plan_json(result), 2).c_str());
  else
    std::printf("%s", plan_text(*config, result).c_str());
  return {};
}

}  // namespace

void register_plan(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("plan", "Say what a run would need, before loading anything");
  const auto options = std::make_shared<Options>();
  options->request.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  command->add_option("model", options->path, "Model folder, or a config.json alone")->required();
  command->add_option("--context", options->request.context, "Positions of each sequence")
      ->capture_default_str();
  command->add_option("--sequences", options->request.sequences, "Sequences at the same time")
      ->capture_default_str();
  command->add_option("--rows", options->request.rows, "Tokens computed in one step")->capture_default_str();
  command->add_option("--threads", options->request.threads, "Threads that compute")->capture_default_str();
  command->add_option("--mode", options->mode, "official, reference or reference-unrounded")
      ->capture_default_str();
  command->add_option("--memory", options->memory,
                      "Memory that may be used, such as 140GiB (default: what is available here)");
  command->add_flag("--draft", options->request.draft, "With the draft module");
  command->add_flag("--vision", options->request.vision, "With the picture tower");
  command->add_flag("--json", options->json, "Print a JSON object");
  command->callback([options, &exit_code] {
    const Status status = plan(*options);
    exit_code = status.ok() ? kExitOk : report(status.error());
  });
}

}  // namespace deepinfer::cli
