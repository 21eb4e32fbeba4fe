// Measurements over an engine, as library calls with structured results: perplexity of token documents, and
// whether the same prompts give the same bits however they are run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "deepinfer/engine.h"

namespace deepinfer {

// ---- perplexity ----

/// Negative log-likelihood of the tokens at some positions. A document's first token is context only.
struct PerplexityBucket {
  std::int64_t from = 0, to = 0;  ///< positions [from, to) of the predicted token
  std::int64_t tokens = 0;
  double nll = 0;             ///< nats, summed
  double perplexity() const;  ///< exp(nll / tokens); 0 without tokens
};

struct PerplexityOptions {
  /// Longer documents are cut into windows of this many tokens, each scored by itself; 0 = the engine's
  /// context.
  std::int64_t window = 0;
  /// Upper borders of the position buckets, ascending; a last bucket takes the rest.
  std::vector<std::int64_t> bucket_borders = {128, 512, 1024, 2048, 4096, 16384, 65536};
  std::int64_t in_flight = 64;  ///< windows submitted at once; bounds the memory of the results
  std::function<void(std::int64_t done_tokens)> on_progress = nullptr;  ///< on the engine's thread
};

struct PerplexityResult {
  PerplexityBucket total;
  std::vector<PerplexityBucket> buckets;    ///< only those with tokens
  std::vector<PerplexityBucket> documents;  ///< one a document
  double seconds = 0;
};

/// Scores documents (token ids, usually with the beginning-of-sequence id first). Documents of fewer than two
/// tokens count nothing. The first failed window is the error. Only the wanted column of each row of logits
/// is kept.
Result<PerplexityResult> measure_perplexity(EngineInterface& engine,
                                            std::span<const std::vector<TokenId>> documents,
                                            const PerplexityOptions& options = {});

// ---- determinism ----

/// One way of running the same requests.
struct DeterminismVariant {
  std::string name;            ///< e.g. "alone", "batched", "shuffled", "chunks of 7"
  std::int64_t compared = 0;   ///< requests
  std::int64_t differing = 0;  ///< requests with any differing token, text or log-probability bit
  std::string first_difference;
};

struct DeterminismResult {
  std::vector<DeterminismVariant> variants;
  bool deterministic() const;
};

/// Makes an engine over one model with these options; called for one engine at a time.
using EngineFactory = std::function<Result<std::unique_ptr<EngineInterface>>(const EngineOptions&)>;

struct DeterminismOptions {
  EngineOptions base;                                 ///< what all variants start from
  std::int64_t repeat = 1;                            ///< copies of each request in the batched variants
  std::vector<std::int64_t> chunk_rows = {1, 7, 64};  ///< max_chunk_rows to try
  std::uint64_t shuffle_seed = 1;
};

/// Runs the requests alone (the reference), batched, in shuffled order, in chunks, and with a cache so small
/// that they preempt each other; compares tokens, text and the bits of every log-probability with the
/// reference. Requests should ask for logprobs (and prompt_logprobs): they carry the bits of the logits.
Result<DeterminismResult> check_determinism(const EngineFactory& factory, std::span<const Request> requests,
                                            const DeterminismOptions& options = {});

}  // namespace deepinfer
