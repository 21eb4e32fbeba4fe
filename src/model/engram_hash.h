// Which Engram table rows a position reads: a hash of its last n-grams of compressed token ids. Depends on
// token ids only, so rows can be named (and fetched) as soon as the tokens are known. Immutable after
// creation; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/config.h"

namespace deepinfer {

class EngramHash {
 public:
  /// token_map: token id -> compressed id for every id of the vocabulary. Errors: kCorrupt when its size or
  /// its range disagrees with the configuration, or the primes do not add up to the tables' row counts.
  static Result<EngramHash> create(const EngramConfig& config, std::vector<std::int32_t> token_map);

  /// Row ids read per position and table: (max_ngram - 1) * heads.
  std::int64_t rows_per_token() const { return (max_ngram_ - 1) * heads_; }

  /// Row ids of table `table` (index into EngramConfig::layers) for the token at the end of `history`, which
  /// holds at least the last max_ngram ids or the whole sequence. out [rows_per_token()]. A negative id in
  /// `history` marks a position inside a picture: it and everything before it count as padding.
  void rows(std::int64_t table, std::span<const TokenId> history, std::int64_t* out) const;

  /// multipliers(table) [max_ngram] and primes(table) [(max_ngram-1)*heads], for tests and tools.
  std::span<const std::int64_t> multipliers(std::int64_t table) const;
  std::span<const std::int64_t> primes(std::int64_t table) const;

 private:
  std::int64_t max_ngram_ = 0, heads_ = 0;
  std::int32_t pad_ = 0;
  std::vector<std::int32_t> token_map_;
  std::vector<std::vector<std::int64_t>> multipliers_, primes_, offsets_;
};

}  // namespace deepinfer
