// One answer as it grows: tokens, text, stop checks, penalty counts, log-probabilities and grammar state.
// Everything the host keeps of a sequence lives here and can go back by any number of generated tokens; what
// the cache keeps is the scheduler's and the model's. Preemption does not touch it. The engine's thread is
// the only caller.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "deepinfer/types.h"
#include "engine/constraint.h"
#include "engine/sampler.h"
#include "engine/stop_strings.h"
#include "tokenizer/stream_decoder.h"

namespace deepinfer {

class Tokenizer;

/// What an engine knows of its vocabulary. Outlives every answer.
struct Vocabulary {
  const Tokenizer* tokenizer = nullptr;  ///< null: answers have no text, stop strings are refused
  std::int64_t size = 0;                 ///< columns of the logits
  std::vector<TokenId> end_ids;          ///< end-of-sequence
  std::optional<TokenId> think_begin, think_end;
};

class AnswerState {
 public:
  /// `request`, `stops` and `vocabulary` outlive the answer. `tokens` is the prompt. `max_new` >= 0.
  AnswerState(const Request& request, const StopStrings& stops, const Vocabulary& vocabulary,
              std::vector<TokenId> tokens, std::int32_t index, std::uint64_t seed, std::int64_t max_new,
              std::unique_ptr<TokenConstraint> constraint);

  std::span<const TokenId> tokens() const { return tokens_; }  ///< prompt and answer
  std::int64_t prompt_count() const { return prompt_count_; }
  std::int64_t answer_count() const { return static_cast<std::int64_t>(tokens_.size()) - prompt_count_; }
  std::int64_t max_new() const { return max_new_; }

  /// Fills what the next draw needs; the spans point into this object and live until the next call of any
  /// method.
  Status prepare_draw(DrawInputs& inputs);
  /// Takes the drawn token in. True: the answer is complete. Errors: the grammar refuses the token.
  Result<bool> append(Draw draw);
  /// Takes back the newest `count` generated tokens. None of them may have been streamed.
  Status rollback(std::int64_t count);

  /// What is new and settled since the last call.
  Delta take_delta();
  bool has_delta() const {
    return streamed_tokens_ < answer_count() || (finished_ && streamed_bytes_ < text_.size());
  }
  /// Ends the answer from outside (error, cancel): the text held back becomes final.
  void finish(FinishReason reason);
  bool finished() const { return finished_; }
  FinishReason finish_reason() const { return finish_; }
  /// The whole answer; the state is spent.
  Answer take_answer();

 private:
  bool is_end(TokenId token) const;

  const Request* request_;
  const StopStrings* stops_;
  const Vocabulary* vocabulary_;
  std::int32_t index_;
  std::uint64_t seed_;
  std::int64_t max_new_;
  std::int64_t prompt_count_;
  std::vector<TokenId> tokens_;

  std::optional<StreamDecoder> decoder_;
  std::string text_;
  std::vector<TokenLogprob> logprobs_;
  TokenCounts counts_;
  std::unique_ptr<TokenConstraint> constraint_;
  std::int64_t constraint_from_ = -1;  // answer tokens from here on were accepted by it; -1: not begun
  std::vector<std::uint32_t> mask_;
  std::vector<TokenId> bans_;

  std::int64_t streamed_tokens_ = 0;
  std::size_t streamed_bytes_ = 0;
  bool finished_ = false;
  FinishReason finish_ = FinishReason::kStop;
  std::string stop_text_;
};

}  // namespace deepinfer
