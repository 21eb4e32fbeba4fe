// The engine over a Model and a Tokenizer: EngineCore (core.h) plus a thread, an inbox, grammar workers and a
// watchdog. Model, tokenizer and compiler belong to the caller and outlive the engine; nobody else may use
// the model meanwhile.
#pragma once

#include <memory>

#include "base/result.h"
#include "deepinfer/engine.h"
#include "engine/constraint.h"

namespace deepinfer {

class EngineCore;
class Model;
class Tokenizer;

struct EngineParts {
  Model* model = nullptr;
  const Tokenizer* tokenizer = nullptr;          ///< null: tokens only, no text and no stop strings
  std::shared_ptr<ConstraintCompiler> compiler;  ///< null: requests with StructuredOutput are refused
};

class Engine final : public EngineInterface {
 public:
  /// Errors: kInvalidArgument for options that contradict each other or the model.
  static Result<std::unique_ptr<Engine>> create(const EngineParts& parts, const EngineOptions& options);
  /// Ends what is open with error_code "cancelled" and joins its threads.
  ~Engine() override;

  RequestHandle submit(Request request, Sink sink) override;
  void cancel(RequestHandle handle) override;
  void drain() override;
  EngineStats stats() const override;
  std::int64_t max_context() const override;

  /// Manual engines only: takes the inbox in and does one step. False when there was nothing to do; requests
  /// whose grammar is being compiled may still be open.
  bool step();
  /// Manual engines only: for rollback and inspection between steps.
  EngineCore& core();

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace deepinfer
