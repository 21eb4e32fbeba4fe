// One opened model, ready to answer: what every front end starts from.
//
// Owns checkpoint, network, tokenizer and engine, in the right order of life. The engine and the codec may be
// used from any thread; the session itself is opened and closed by one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "api/model_codec.h"
#include "base/result.h"
#include "deepinfer/engine.h"
#include "io/json.h"

namespace deepinfer {

class Decoder;
struct ModelConfig;

struct SessionOptions {
  std::string model;       ///< folder; "" = default_model_folder()
  bool reference = false;  ///< fp32 activations instead of the official numerics
  std::int64_t max_context =
      0;  ///< tokens of one sequence, prompt and answer; 0 = 32,768 or the model's limit
  std::int64_t cache_tokens = 0;  ///< tokens of all sequences together; 0 = one full context, at least 65,536
  std::int64_t sequences = 0;     ///< running at once; 0 = 32
  std::int64_t rows = 0;          ///< tokens computed in one step; 0 = 512
  int threads = 0;                ///< 0 = physical cores
  std::uint64_t seed = 0;         ///< of requests that bring none, together with their ids
  double watchdog_seconds = 0;    ///< EngineOptions::watchdog_seconds
};

/// $DEEPINFER_MODEL, else the bundled demo model: share/deepinfer/models/demo-v41 or models/demo-v41 in the
/// program's folder or one of the four above it. Errors: kNotFound, saying how to name a model.
Result<std::string> default_model_folder();

class Session {
 public:
  /// Errors: everything that is wrong with the folder; kOutOfMemory with the largest context that fits.
  static Result<std::unique_ptr<Session>> open(const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;

  EngineInterface& engine();
  const ModelCodec& codec() const;
  const ModelConfig& config() const;
  /// The model folder's last component, e.g. "demo-v41".
  const std::string& model_name() const;
  /// The folder.
  const std::string& folder() const;
  /// What answers depend on: {"model_hash", "numerics", "seed"}.
  const Json& identity() const;
  /// Closes the present engine and makes another over the same network (measurements that need several).
  Result<std::unique_ptr<EngineInterface>> make_engine(EngineOptions options);

 private:
  struct Parts;
  explicit Session(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace deepinfer
