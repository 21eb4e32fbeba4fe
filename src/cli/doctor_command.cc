// deepinfer doctor: what this machine offers and whether the model files are whole.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "api/model_codec.h"
#include "api/session.h"
#include "api/version.h"
#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "io/checkpoint.h"
#include "kernels/registry.h"
#include "model/config.h"
#include "model/report.h"

namespace deepinfer::cli {
namespace {

namespace fs = std::filesystem;

struct DoctorOptions {
  std::string model;
  bool full_hash = false;
};

void line(std::string_view name, const std::string& value) {
  std::printf("%-18s %s\n", std::string(name).c_str(), value.c_str());
}

std::string size_text(double bytes) {
  return fmt::format("{:.1f} GiB", bytes / (1 << 30));
}

// The first value of a "name : value" line of a /proc file, or "".
std::string proc_value(const char* path, std::string_view name) {
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    if (!text.starts_with(name)) continue;
    const std::size_t colon = text.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t value = text.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? "" : text.substr(value);
  }
  return "";
}

double meminfo_bytes(std::string_view name) {
  const std::string value = proc_value("/proc/meminfo", name);
  return value.empty() ? 0 : std::strtod(value.c_str(), nullptr) * 1024;
}

// Those of the instruction sets that kernels choose by, present ones first.
std::string instruction_sets() {
  const std::string flags = " " + proc_value("/proc/cpuinfo", "flags") + " ";
  std::string present, absent;
  for (const char* name : {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16",
                           "amx_tile", "amx_bf16", "amx_int8"}) {
    const bool found = flags.find(fmt::format(" {} ", name)) != std::string::npos;
    (found ? present : absent) += fmt::format(" {}", name);
  }
  return fmt::format("with{}; without{}", present.empty() ? " none" : present,
                     absent.empty() ? " none" : absent);
}

std::string free_space(const fs::path& folder) {
  std::error_code failure;
  const fs::space_info space = fs::space(folder, failure);
  return failure ? failure.message()
                 : fmt::format("{} free of {}", size_text(static_cast<double>(space.available)),
                               size_text(static_cast<double>(space.capacity)));
}

void machine() {
  line("deepinfer", fmt::format("{} ({})", version(), build_description()));
  const std::string cpu = proc_value("/proc/cpuinfo", "model name");
  line("processor", cpu.empty() ? "unknown" : cpu);
  line("instructions", instruction_sets());
  line("cores", fmt::format("{} physical (the default thread count), {} logical", physical_core_count(),
                            ::sysconf(_SC_NPROCESSORS_ONLN)));
  line("memory", fmt::format("{} available of {}", size_text(meminfo_bytes("MemAvailable")),
                             size_text(meminfo_bytes("MemTotal"))));
  line("page size", fmt::format("{} KiB", ::sysconf(_SC_PAGESIZE) / 1024));
  std::error_code ignored;
  line("working folder", free_space(fs::current_path(ignored)));
  std::printf("\nkernels in use\n");
  for (const Kernel& kernel : chosen_kernels(KernelChoice::kFast)) {
    std::printf(
        "  %-24s %-4s %-40s %s\n", std::string(kernel.op).c_str(), std::string(kernel.backend).c_str(),
        std::string(kernel.isa).c_str(),
        kernel.numerics == NumericsClass::kBitExact ? "bits of the reference" : "within the tested bound");
  }
}

// Every problem of the model is printed; whether there was none.
bool model(const DoctorOptions& options) {
  std::string folder = options.model;
  if (folder.empty()) {
    Result<std::string> found = default_model_folder();
    if (!found.ok()) {
      report(found.error());
      return false;
    }
    folder = *found;
  }
  std::printf("\n");
  line("model", folder);
  line("disk", free_space(folder));
  bool good = true;
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder);
  if (checkpoint.ok()) {
    line("weights", fmt::format("{} tensors, {} in {} files", checkpoint.value().tensor_count(),
                                size_text(static_cast<double>(checkpoint.value().tensor_bytes())),
                                checkpoint.value().shards().size()));
    line("fingerprint", checkpoint.value().fingerprint());
    if (options.full_hash) line("full hash", checkpoint.value().full_hash());
    const Result<ModelConfig> config = parse_config(checkpoint.value().config_text());
    if (config.ok()) {
      line("configuration",
           fmt::format("{}, {} layers, {} wide, {} experts", config.value().model_type, config.value().layers,
                       config.value().hidden, config.value().experts));
    } else {
      report(config.error().at(folder + "/config.json"));
      good = false;
    }
  } else {
    report(checkpoint.error());
    good = false;
  }
  const auto codec = ModelCodec::load(folder);
  if (codec.ok()) {
    line("tokenizer", fmt::format("{} tokens, chat format {}", codec.value()->tokenizer().vocab_size(),
                                  chat_format_name(codec.value()->chat().wording().format)));
  } else {
    report(codec.error());
    good = false;
  }
  return good;
}

}  // namespace

void register_doctor(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* command = app.add_subcommand("doctor", "Check this machine and the model files");
  command
      ->add_option("-m,--model", options->model,
                   "Model folder ($DEEPINFER_MODEL, else the bundled demo model)")
      ->type_name("DIR");
  command->add_flag("--full-hash", options->full_hash, "Also hash every byte of the weights");
  command->callback([options, &exit_code] {
    machine();
    exit_code = model(*options) ? kExitOk : kExitFailed;
  });
}

}  // namespace deepinfer::cli
