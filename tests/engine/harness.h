// What the engine's tests share: an engine over a FakeModel, collected results, and the answer a request must
// get, worked out one token at a time from the oracle.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "deepinfer/engine.h"
#include "engine/core.h"
#include "engine/engine.h"
#include "engine/fake_model.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

/// 256 byte tokens (id = byte + 4 in the order of the byte values), "he", "the"; ids 0..3 are <bos> <eos>
/// <think> </think>.
const Tokenizer& small_tokenizer();
/// Ids of plain text, a byte each.
std::vector<TokenId> byte_tokens(const std::string& text);

/// Everything one request sent to its sink.
struct Collected {
  std::vector<Delta> deltas;
  std::vector<RequestResult> results;
  const RequestResult& only() const { return results.at(0); }
};

/// Submits with a sink that collects; the object lives as long as the sink.
RequestHandle submit(EngineInterface& engine, Request request, std::shared_ptr<Collected> into,
                     bool stream = false);
/// Submits, drains, returns the result.
RequestResult run_one(EngineInterface& engine, Request request);

/// The answers of a request by the definition, from the oracle (no cache, no batch, no chunks).
std::vector<Answer> expected_answers(const FakeModel& model, const Tokenizer* tokenizer,
                                     const Request& request, std::uint64_t engine_seed,
                                     std::int64_t max_context, const CompiledConstraint* grammar = nullptr);

/// A made-up grammar: token t may come in state s when (t + s) % 3 == 0; may end after 3 tokens, must end
/// after 6 (with think tokens never allowed inside). Texts: "bad" does not compile, "throw" throws, "slow"
/// takes 50 ms, "dead" has a dead end after 2 tokens, "blank" reports no progress after 4.
class FakeCompiler final : public ConstraintCompiler {
 public:
  explicit FakeCompiler(std::int64_t vocab) : vocab_(vocab) {}
  Result<std::shared_ptr<const CompiledConstraint>> compile(const StructuredOutput& what,
                                                            std::vector<std::string>& warnings) override;

 private:
  std::int64_t vocab_;
};
/// Whether a token sequence (without the end) is a text of that grammar.
bool fake_grammar_accepts(std::span<const TokenId> tokens);

/// Compares every field; empty text if equal, else what differs.
std::string difference(const Answer& a, const Answer& b);

}  // namespace deepinfer
