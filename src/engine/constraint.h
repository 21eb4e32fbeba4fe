// What the engine asks of a structured-output grammar. The grammar module knows nothing of sequences; the
// engine knows nothing of grammars. Compilation happens on worker threads, everything else on the engine's
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "deepinfer/types.h"

namespace deepinfer {

/// The state of one answer's grammar.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  /// Writes one bit a vocabulary id (bit v of word v/32): may it come next? End-of-sequence ids are the
  /// engine's business: their bits are overwritten from can_end(). Errors end this request alone.
  virtual Status mask(std::span<std::uint32_t> bits) = 0;
  /// Advances by a token that the last mask allowed.
  virtual Status accept(TokenId token) = 0;
  /// Whether the answer may end here.
  virtual bool can_end() = 0;
  /// True when the answer only marks time (white space without end); the engine then ends it with an error.
  virtual bool no_progress() { return false; }
  /// Takes back the newest `count` accepted tokens.
  virtual Status rollback(std::int64_t count) = 0;
};

/// A grammar ready for use; immutable, shared by the answers of a request (and by a cache).
class CompiledConstraint {
 public:
  virtual ~CompiledConstraint() = default;
  virtual std::unique_ptr<TokenConstraint> start() const = 0;
};

/// Turns a StructuredOutput into a grammar. Called from several threads at once.
class ConstraintCompiler {
 public:
  virtual ~ConstraintCompiler() = default;
  /// Appends what best-effort mode had to loosen to `warnings`.
  virtual Result<std::shared_ptr<const CompiledConstraint>> compile(const StructuredOutput& what,
                                                                    std::vector<std::string>& warnings) = 0;
};

}  // namespace deepinfer
