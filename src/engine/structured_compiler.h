// From StructuredOutput to a grammar over one tokenizer's vocabulary: the ConstraintCompiler of the real
// engine. Thread-safe. Grammars are kept (least recently used go first), so a schema repeated by many
// requests compiles once.
#pragma once

#include <memory>
#include <span>

#include "engine/constraint.h"

namespace deepinfer {

class Tokenizer;

struct StructuredCompilerOptions {
  std::size_t kept_grammars = 256;
};

/// `end_ids` are the ids that end an answer; `logits_width` the columns of the model's logits. Added tokens
/// of the tokenizer are never text. Errors: those of the vocabulary (ids out of range).
Result<std::shared_ptr<ConstraintCompiler>> make_structured_compiler(
    const Tokenizer& tokenizer, std::span<const TokenId> end_ids, std::int64_t logits_width,
    const StructuredCompilerOptions& options = {});

}  // namespace deepinfer
