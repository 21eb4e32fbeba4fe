// Which requests an engine takes. Pure functions; any thread.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "deepinfer/types.h"

namespace deepinfer {

struct RequestLimits {
  std::int64_t vocab_size = 0;
  std::int64_t max_context = 0;  ///< prompt + answer tokens of one sequence
  std::int64_t max_stop_bytes = 0;
  bool has_text = false;      ///< a tokenizer is there
  bool has_grammars = false;  ///< a constraint compiler is there
};

inline constexpr std::int32_t kMaxAnswers = 128;
inline constexpr std::int32_t kMaxTopLogprobs = 20;

/// The first thing that is wrong with a request, with the field as the place; ok if nothing is.
Status check_request(const Request& request, const RequestLimits& limits);

/// Answer tokens a checked request may get.
std::int64_t max_new_tokens(const Request& request, std::int64_t max_context);

}  // namespace deepinfer
