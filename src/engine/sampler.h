// From one row of logits to one token: the plain C++ definition that every faster sampler must equal. The
// order of the steps and the tie rules are documented in docs/design/sampling.md. A draw is a function of
// (row, parameters, history counts, mask, seed, position, stream) alone. Cost: greedy without penalties is
// one pass over the row; a draw adds one pass of Philox and one of exp. One Sampler is used by one thread at
// a time; it owns scratch memory only.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "deepinfer/types.h"
#include "engine/philox.h"

namespace deepinfer {

/// How often each token occurred; feeds the penalties. Counts can be taken back (rollback).
class TokenCounts {
 public:
  void add_prompt(TokenId token) { ++counts_[token].prompt; }
  void add_answer(TokenId token) { ++counts_[token].answer; }
  void remove_answer(TokenId token);

  struct Count {
    std::int32_t prompt = 0;
    std::int32_t answer = 0;
  };
  const std::unordered_map<TokenId, Count>& all() const { return counts_; }

 private:
  std::unordered_map<TokenId, Count> counts_;
};

/// Whether SamplingParams needs TokenCounts at all.
bool needs_counts(const SamplingParams& params);

/// What besides the row decides one draw.
struct DrawInputs {
  const SamplingParams* params = nullptr;
  const TokenCounts* counts = nullptr;     ///< may be null when !needs_counts()
  std::span<const std::uint32_t> allowed;  ///< grammar mask, bit v of word v/32; empty = everything
  std::span<const TokenId> banned;         ///< ids that may not come now (end-of-sequence before min_tokens)
  std::uint64_t seed = 0;
  std::int64_t position = 0;  ///< index in the sequence of the token being drawn
  RandomStream stream = RandomStream::kTarget;
  std::int32_t logprobs = -1;  ///< as SamplingParams::logprobs
};

struct Draw {
  TokenId token = 0;
  TokenLogprob logprob;  ///< filled when logprobs >= 0: of the plain distribution, before any parameter
};

class Sampler {
 public:
  /// Draws one token. `row` [vocab] is overwritten. Errors (kInternal, no place): values that are not finite,
  /// a row whose values are all equal, no token left by mask and bans.
  Result<Draw> draw(std::span<float> row, const DrawInputs& inputs);

  /// The tokens that top-k, top-p and min-p leave of a processed row, with their scaled logits (l - max)/T,
  /// in rank order (value descending, id ascending). Valid until the next call. For tests and for
  /// speculation's ratio tests.
  const std::vector<std::pair<float, TokenId>>& survivors(std::span<const float> row,
                                                          const SamplingParams& params);

 private:
  TokenId gumbel_all(std::span<const float> row, TokenId best, float max, float scale,
                     const DrawInputs& inputs);

  std::vector<std::pair<float, TokenId>> scratch_;
};

/// Steps 1-3: penalties, bias, mask and bans, in place. Forbidden tokens become -inf.
void process_row(std::span<float> row, const DrawInputs& inputs);

/// 1 / temperature in fp32; temperatures below 1e-6 count as 1e-6. Precondition: temperature > 0.
float inverse_temperature(const SamplingParams& params);

/// The noise of one token: G = -log(-log1p(-u)), u = (word >> 1) * 2^-31 in fp32, 2^-31 <= u <= 1 - 2^-24.
float gumbel(std::uint32_t word);

}  // namespace deepinfer
