// deepinfer convert: a quantised copy of a checkpoint, or a random checkpoint of a given shape.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <vector>

#include "cli/commands.h"
#include "cli/common.h"
#include "io/mmap_file.h"
#include "model/convert/quantize_checkpoint.h"
#include "model/convert/random_checkpoint.h"

namespace deepinfer::cli {
namespace {

struct Options {
  std::vector<std::string> folders;  // [SRC] DST
  bool quantize = false;             // the default, when there is a SRC
  std::int64_t block = 0;
  std::string random_shape;
  std::string experts = "fp4";
  std::uint64_t seed = 0;
  double shard_gib = 0;
};

Status convert(const Options& options) {
  const bool random = !options.random_shape.empty();
  if (random && options.quantize)
    return invalid_argument("--quantize and --random exclude each other", "convert");
  if (options.folders.size() != (random ? 1u : 2u))
    return invalid_argument(
        random ? "--random takes one folder: DST" : "a quantised copy takes two folders: SRC DST", "convert");
  const auto shard_bytes = static_cast<std::int64_t>(options.shard_gib * (1 << 30));
  Result<WrittenCheckpoint> written = invalid_argument("nothing done");
  if (!random) {
    QuantizeOptions q;
    q.block = options.block;
    q.fp4_experts = options.experts == "fp4";
    if (shard_bytes > 0) q.max_shard_bytes = shard_bytes;
    written = quantize_checkpoint(options.folders[0], options.folders[1], q);
  } else {
    DI_ASSIGN(const std::string text, read_text_file(options.random_shape, std::size_t{16} << 20));
    RandomOptions r;
    r.seed = options.seed;
    if (shard_bytes > 0) r.max_shard_bytes = shard_bytes;
    written = random_checkpoint(text, options.folders[0], r);
  }
  if (!written.ok()) return written.error();
  std::printf("%s: %lld tensors, %.2f GiB in %lld file%s\n", options.folders.back().c_str(),
              static_cast<long long>(written->tensors), static_cast<double>(written->bytes) / (1 << 30),
              static_cast<long long>(written->shards), written->shards == 1 ? "" : "s");
  return {};
}

}  // namespace

void register_convert(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("convert", "Write a quantised copy of a checkpoint, or a random one of any shape");
  const auto options = std::make_shared<Options>();
  command
      ->add_option("folders", options->folders,
                   "SRC DST, or DST alone with --random; DST must be new or empty")
      ->required()
      ->expected(1, 2);
  command->add_flag("--quantize", options->quantize,
                    "FP8 linears and FP4 experts from BF16 or F32 weights (what two folders mean)");
  command->add_option("--block", options->block, "Edge of the FP8 tiles (default: 128 for V4, 32 for V4.1)")
      ->check(CLI::IsMember({32, 128}));
  command->add_option("--experts", options->experts, "Format of routed experts with --quantize")
      ->check(CLI::IsMember({"fp4", "fp8"}))
      ->capture_default_str();
  command->add_option("--random", options->random_shape,
                      "A config.json whose shape and formats random weights get");
  command->add_option("--seed", options->seed, "Of --random")->capture_default_str();
  command
      ->add_option("--shard-gib", options->shard_gib, "Largest size of a file (default 5, 1 with --random)")
      ->check(CLI::Range(1e-6, 1e6));
  command->callback([options, &exit_code] {
    const Status status = convert(*options);
    exit_code = status.ok() ? kExitOk : report(status.error());
  });
}

}  // namespace deepinfer::cli
