// deepinfer inspect: what a model folder holds.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/common.h"
#include "io/checkpoint.h"
#include "model/report.h"

namespace deepinfer::cli {
namespace {

struct Options {
  std::string path;
  bool json = false;
  bool config_only = false;
  bool full_hash = false;
};

Result<std::string> config_text_of(const std::string& path) {
  if (std::filesystem::is_directory(path)) return read_config_text(path);
  return read_text_file(path, std::size_t{16} << 20);
}

Status inspect(const Options& options) {
  DI_ASSIGN(const std::string text, config_text_of(options.path));
  const Result<ModelConfig> config = parse_config(text);
  if (!config.ok()) return config.error().at(options.path);
  const ModelReport report = describe_model(*config);
  Json json = report_json(*config, report);
  std::string notes;
  if (!options.config_only && std::filesystem::is_directory(options.path)) {
    DI_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(options.path));
    DI_TRY(check_tensors(checkpoint, expected_tensors(*config)));
    const std::string fingerprint = checkpoint.fingerprint();
    json.set("stored_bytes", checkpoint.tensor_bytes())
        .set("shards", static_cast<std::int64_t>(checkpoint.shards().size()));
    json.set("fingerprint", fingerprint);
    notes = "checkpoint             complete, " + std::to_string(checkpoint.tensor_count()) + " tensors, " +
            size_text(static_cast<double>(checkpoint.tensor_bytes())) + " in " +
            std::to_string(checkpoint.shards().size()) + " file(s)\nfingerprint            " + fingerprint +
            "\n";
    if (options.full_hash) {
      const std::string hash = checkpoint.full_hash();
      json.set("full_hash", hash);
      notes += "full hash              " + hash + "\n";
    }
  }
  if (options.json)
    std::printf("%s\n", to_json_text(json, 2).c_str());
  else
    std::printf("%s%s", report_text(*config, report).c_str(), notes.c_str());
  return {};
}

}  // namespace

void register_inspect(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("inspect", "Show what a model folder holds, and check it");
  const auto options = std::make_shared<Options>();
  command->add_option("model", options->path, "Model folder, or a config.json alone")->required();
  command->add_flag("--json", options->json, "Print a JSON object");
  command->add_flag("--config-only", options->config_only, "Do not look at the weights");
  command->add_flag("--full-hash", options->full_hash, "Also hash every byte of the weights");
  command->callback([options, &exit_code] {
    const Status status = inspect(*options);
    exit_code = status.ok() ? kExitOk : report(status.error());
  });
}

}  // namespace deepinfer::cli
