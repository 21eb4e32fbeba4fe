#include "api/session.h"

#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "engine/engine.h"
#include "engine/structured_compiler.h"
#include "io/checkpoint.h"
#include "io/mmap_file.h"
#include "model/config.h"
#include "model/open_model.h"
#include "model/report.h"

namespace deepinfer {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kDefaultContext = 32768;
constexpr std::int64_t kDefaultCacheTokens = 65536;
constexpr std::int64_t kDefaultSequences = 32;
constexpr std::int64_t kDefaultRows = 512;
constexpr const char* kDemoModel = "models/demo-v41";

std::int64_t blocks_for(std::int64_t tokens) {
  return (tokens + kBlockTokens - 1) / kBlockTokens;
}

struct SessionSizes {
  std::int64_t context, cache_tokens, sequences, rows;
  int threads;
};

SessionSizes choose_sizes(const ModelConfig& config, const SessionOptions& options) {
  SessionSizes out;
  out.context =
      options.max_context > 0 ? options.max_context : std::min(kDefaultContext, config.max_positions);
  const std::int64_t cache = options.cache_tokens > 0 ? options.cache_tokens : kDefaultCacheTokens;
  out.cache_tokens = std::max(cache, out.context);
  out.sequences = options.sequences > 0 ? options.sequences : kDefaultSequences;
  out.rows = options.rows > 0 ? options.rows : kDefaultRows;
  out.threads = options.threads > 0 ? options.threads : physical_core_count();
  return out;
}

// Refuses, before anything large is allocated, what would not fit, and says what would.
Status check_memory(const ModelConfig& config, const SessionSizes& sizes, const Numerics& numerics) {
  PlanRequest request;
  request.context = sizes.context;
  request.sequences = (sizes.cache_tokens + sizes.context - 1) / sizes.context;
  request.rows = sizes.rows;
  request.threads = sizes.threads;
  request.numerics = numerics;
  request.memory_bytes = available_memory_bytes();
  DI_ASSIGN(const MemoryPlan plan, plan_memory(config, request));
  // The plan counts one slot a context; here there are more slots, which share the cached tokens.
  const std::int64_t slots = plan.sequence_bytes / request.sequences * sizes.sequences;
  const std::int64_t needed = plan.total_bytes - plan.sequence_bytes + slots;
  if (!request.memory_bytes || needed <= *request.memory_bytes) return {};
  // Cached tokens cost the same each, so what is left says how many fit.
  const double token_bytes =
      static_cast<double>(plan.history_bytes) / static_cast<double>(request.sequences * request.context);
  const double left =
      static_cast<double>(*request.memory_bytes) - static_cast<double>(needed - plan.history_bytes);
  const std::int64_t fitting = static_cast<std::int64_t>(left / token_bytes) / kBlockTokens * kBlockTokens;
  std::string advice = "weights and workspace alone do not fit; fewer --rows and --sequences take less";
  if (fitting >= sizes.context) {
    advice = fmt::format("--cache-tokens {} fits", fitting);
  } else if (fitting > 0) {
    advice = fmt::format("the largest context that fits is {}: --max-context {} --cache-tokens {}", fitting,
                         fitting, fitting);
  }
  return Error{
      ErrorCode::kOutOfMemory,
      fmt::format("{} are needed (weights {}, {} cached tokens {}, {} sequences {}, workspace {}) and {} are "
                  "available; {}",
                  size_text(static_cast<double>(needed)), size_text(static_cast<double>(plan.weight_bytes)),
                  sizes.cache_tokens, size_text(static_cast<double>(plan.history_bytes)), sizes.sequences,
                  size_text(static_cast<double>(slots)), size_text(static_cast<double>(plan.workspace_bytes)),
                  size_text(static_cast<double>(*request.memory_bytes)), advice),
      ""};
}

// 32 hex digits over the files that turn text into tokens.
Result<std::string> hash_text_files(const std::string& folder) {
  std::string joined;
  for (const std::string& name : {std::string("tokenizer.json"), std::string(kChatWordingFile)}) {
    const std::string path = folder + "/" + name;
    if (std::error_code ignored; !fs::exists(path, ignored)) continue;
    DI_ASSIGN(const MmapFile file, MmapFile::open(path));
    const XXH128_hash_t hash = XXH3_128bits(file.bytes().data(), file.size_bytes());
    joined += fmt::format("{} {:016x}{:016x}\n", name, hash.high64, hash.low64);
  }
  const XXH128_hash_t hash = XXH3_128bits(joined.data(), joined.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

Result<std::string> default_model_folder() {
  if (const char* named = std::getenv("DEEPINFER_MODEL"); named != nullptr && *named != '\0')
    return std::string(named);
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  fs::path folder =
      size > 0 ? fs::path(std::string(path, static_cast<std::size_t>(size))).parent_path() : fs::path();
  for (int level = 0; level < 5 && !folder.empty(); ++level) {
    for (const char* place : {"share/deepinfer", "."}) {
      const fs::path candidate = (folder / place / kDemoModel).lexically_normal();
      if (std::error_code ignored; fs::exists(candidate / "config.json", ignored)) return candidate.string();
    }
    folder = folder.parent_path();
  }
  return not_found("the bundled model is not there; name a model folder with --model or DEEPINFER_MODEL");
}

struct Session::Parts {
  std::string folder, name;
  Json identity;
  // In the order in which they depend on each other; destroyed in reverse.
  std::unique_ptr<ModelCodec> codec;
  std::unique_ptr<Decoder> model;
  std::shared_ptr<ConstraintCompiler> compiler;
  EngineOptions engine_options;
  std::unique_ptr<EngineInterface> engine;
};

Session::Session(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Session::~Session() = default;

EngineInterface& Session::engine() {
  return *parts_->engine;
}
const ModelCodec& Session::codec() const {
  return *parts_->codec;
}
const ModelConfig& Session::config() const {
  return parts_->model->config();
}
const std::string& Session::model_name() const {
  return parts_->name;
}
const std::string& Session::folder() const {
  return parts_->folder;
}
const Json& Session::identity() const {
  return parts_->identity;
}

Result<std::unique_ptr<Session>> Session::open(const SessionOptions& options) {
  auto parts = std::make_unique<Parts>();
  parts->folder = options.model;
  if (parts->folder.empty()) {
    DI_ASSIGN(parts->folder, default_model_folder());
  }
  if (std::error_code ignored; !fs::is_directory(parts->folder, ignored)) {
    return not_found("no such model folder", parts->folder);
  }
  const fs::path clean = fs::absolute(parts->folder).lexically_normal();
  parts->name = (clean.has_filename() ? clean : clean.parent_path()).filename().string();
  DI_ASSIGN(parts->codec, ModelCodec::load(parts->folder));
  DI_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(parts->folder));
  Result<ModelConfig> config = parse_config(checkpoint.config_text());
  if (!config.ok()) return config.error().at(parts->folder + "/config.json");

  const SessionSizes sizes = choose_sizes(*config, options);
  ModelOptions model_options;
  if (options.reference) model_options.numerics = Numerics::reference(true);
  model_options.max_rows = sizes.rows;
  model_options.threads = sizes.threads;
  model_options.slot_count = sizes.sequences;
  model_options.block_count = blocks_for(sizes.cache_tokens);
  DI_TRY(check_memory(*config, sizes, model_options.numerics));
  DI_ASSIGN(parts->model, open_model(parts->folder, model_options));

  const TokenId end_ids[] = {config->eos};
  DI_ASSIGN(parts->compiler,
            make_structured_compiler(parts->codec->tokenizer(), end_ids, parts->model->vocab_size()));

  parts->identity.set("model_hash", checkpoint.fingerprint());
  DI_ASSIGN(std::string text_hash, hash_text_files(parts->folder));
  parts->identity.set("tokenizer_hash", std::move(text_hash));
  parts->identity.set("numerics", options.reference ? "reference" : "official");
  parts->identity.set("seed", options.seed);
  parts->engine_options.max_context = sizes.context;
  parts->engine_options.seed = options.seed;
  parts->engine_options.watchdog_seconds = options.watchdog_seconds;
  const EngineOptions engine_options = parts->engine_options;
  std::unique_ptr<Session> session(new Session(std::move(parts)));
  DI_ASSIGN(session->parts_->engine, session->make_engine(engine_options));
  return session;
}

Result<std::unique_ptr<EngineInterface>> Session::make_engine(EngineOptions options) {
  parts_->engine.reset();  // one user of the network at a time
  DI_ASSIGN(std::unique_ptr<Engine> engine, Engine::create({.model = parts_->model.get(),
                                                            .tokenizer = &parts_->codec->tokenizer(),
                                                            .compiler = parts_->compiler},
                                                           options));
  return std::unique_ptr<EngineInterface>(std::move(engine));
}

}  // namespace deepinfer
