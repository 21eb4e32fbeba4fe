// The Engram token map: which token ids count as the same word for the n-gram tables.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace deepinfer {

class Tokenizer;

struct TokenMap {
  std::vector<std::int32_t>
      map;  ///< [vocab_size] token id -> compressed id, 0 <= compressed id < distinct_count
  std::int64_t distinct_count = 0;
};

/// Compressed ids in order of first appearance over all token ids (added tokens included). Two tokens share
/// an id when their keys are equal. The key of a token is its text after: NFKC; NFD; all marks (\p{M})
/// removed; lower case; runs of space, tab, CR, LF as one space; white space trimmed at both ends, except
/// that a lone space stays. A token whose key would be empty keeps its text; one whose bytes are not valid
/// UTF-8, or contain U+FFFD, is keyed by its spelling in the vocabulary file. Cost: about a microsecond a
/// token; done once at load. Errors: kInternal when ICU has no normalisation data.
Result<TokenMap> derive_token_map(const Tokenizer& tokenizer);

}  // namespace deepinfer
