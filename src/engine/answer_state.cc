#include "engine/answer_state.h"

#include <algorithm>
#include <utility>

namespace deepinfer {
namespace {

bool contains(const std::vector<TokenId>& ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

AnswerState::AnswerState(const Request& request, const StopStrings& stops, const Vocabulary& vocabulary,
                         std::vector<TokenId> tokens, std::int32_t index, std::uint64_t seed,
                         std::int64_t max_new, std::unique_ptr<TokenConstraint> constraint)
    : request_(&request),
      stops_(&stops),
      vocabulary_(&vocabulary),
      index_(index),
      seed_(seed),
      max_new_(max_new),
      prompt_count_(static_cast<std::int64_t>(tokens.size())),
      tokens_(std::move(tokens)),
      constraint_(std::move(constraint)) {
  if (vocabulary.tokenizer != nullptr) decoder_.emplace(*vocabulary.tokenizer);
  if (needs_counts(request.sampling)) {
    for (const TokenId token : tokens_) counts_.add_prompt(token);
  }
  if (constraint_) {
    constraint_from_ = 0;
    if (request.structured.after_thinking && vocabulary.think_end) {
      // Begun already when the prompt itself closes the thinking.
      const auto last = std::find_if(tokens_.rbegin(), tokens_.rend(), [&](TokenId token) {
        return token == vocabulary.think_end || token == vocabulary.think_begin;
      });
      if (last == tokens_.rend() || *last != vocabulary.think_end) constraint_from_ = -1;
    }
  }
}

/// Whether the token ends the answer. A grammar that is complete needs a way to end, so it overrides
/// ignore_eos.
bool AnswerState::is_end(TokenId token) const {
  const SamplingParams& params = request_->sampling;
  if (contains(params.stop_token_ids, token)) return true;
  return (!params.ignore_eos || constraint_) && contains(vocabulary_->end_ids, token);
}

Status AnswerState::prepare_draw(DrawInputs& inputs) {
  const SamplingParams& params = request_->sampling;
  inputs.params = &params;
  inputs.counts = &counts_;
  inputs.seed = seed_;
  inputs.position = static_cast<std::int64_t>(tokens_.size());
  inputs.logprobs = params.logprobs;
  inputs.allowed = {};
  inputs.banned = {};

  bans_.clear();
  bool may_end = answer_count() >= params.min_tokens;
  if (constraint_ && constraint_from_ < 0) may_end = false;  // the structure must still come
  if (constraint_ && constraint_from_ >= 0) {
    mask_.assign(static_cast<std::size_t>((vocabulary_->size + 31) / 32), 0);
    DI_TRY(constraint_->mask(mask_));
    const auto set_bit = [&](TokenId id, bool value) {
      std::uint32_t& word = mask_[static_cast<std::size_t>(id) / 32];
      const std::uint32_t bit = std::uint32_t{1} << (id % 32);
      word = value ? word | bit : word & ~bit;
    };
    for (const TokenId id : vocabulary_->end_ids) set_bit(id, false);
    const bool can_end = constraint_->can_end();
    const bool can_go_on =
        std::any_of(mask_.begin(), mask_.end(), [](std::uint32_t word) { return word != 0; });
    if (!can_end && !can_go_on) {
      return Error{ErrorCode::kInternal, "the grammar allows neither a token nor the end here",
                   "structured output"};
    }
    if (can_end) {
      for (const TokenId id : vocabulary_->end_ids) set_bit(id, true);
      for (const TokenId id : params.stop_token_ids) set_bit(id, true);
      may_end |= !can_go_on;
    }
    inputs.allowed = mask_;
  }
  if (!may_end) {
    bans_ = vocabulary_->end_ids;
    bans_.insert(bans_.end(), params.stop_token_ids.begin(), params.stop_token_ids.end());
    inputs.banned = bans_;
  }
  return {};
}

Result<bool> AnswerState::append(Draw draw) {
  const SamplingParams& params = request_->sampling;
  const bool ends = is_end(draw.token);
  if (constraint_ && constraint_from_ >= 0 && !ends) {
    const Status accepted = constraint_->accept(draw.token);
    if (!accepted) return accepted.error();
    if (constraint_->no_progress()) {
      return Error{ErrorCode::kDeadline, "the constrained answer is nothing but white space for too long",
                   "structured output"};
    }
  }
  if (constraint_ && constraint_from_ < 0 && draw.token == vocabulary_->think_end)
    constraint_from_ = answer_count() + 1;
  tokens_.push_back(draw.token);
  if (needs_counts(params)) counts_.add_answer(draw.token);
  if (params.logprobs >= 0) logprobs_.push_back(std::move(draw.logprob));
  if (ends) {
    finish(FinishReason::kStop);
    return true;
  }
  if (decoder_) {
    const std::size_t before = text_.size();
    decoder_->push_to(draw.token, text_);
    if (answer_count() >= params.min_tokens && text_.size() > before) {
      if (const auto hit = stops_->find(text_, before)) {
        text_.resize(hit->begin);
        stop_text_ = *hit->stop;
        decoder_.reset();  // an unfinished character behind the stop string is not text
        finish(FinishReason::kStop);
        return true;
      }
    }
  }
  if (answer_count() >= max_new_) {
    finish(FinishReason::kLength);
    return true;
  }
  return false;
}

void AnswerState::finish(FinishReason reason) {
  DI_CHECK(!finished_);
  finished_ = true;
  finish_ = reason;
  if (decoder_) text_ += decoder_->flush();
}

Status AnswerState::rollback(std::int64_t count) {
  DI_CHECK(!finished_ && count >= 0 && count <= answer_count() - streamed_tokens_);
  const std::int64_t left = answer_count() - count;
  if (constraint_ && constraint_from_ >= 0) {
    DI_TRY(constraint_->rollback(std::min(count, answer_count() - constraint_from_)));
    if (constraint_from_ > left) constraint_from_ = -1;  // the token that began it is gone
  }
  for (std::int64_t i = 0; i < count; ++i) {
    if (needs_counts(request_->sampling)) counts_.remove_answer(tokens_.back());
    if (!logprobs_.empty()) logprobs_.pop_back();
    tokens_.pop_back();
  }
  if (decoder_) {  // rare, so the text is simply made again
    decoder_.emplace(*vocabulary_->tokenizer);
    text_.clear();
    for (std::int64_t i = 0; i < left; ++i) {
      decoder_->push_to(tokens_[static_cast<std::size_t>(prompt_count_ + i)], text_);
    }
  }
  return {};
}

Delta AnswerState::take_delta() {
  Delta delta;
  delta.index = index_;
  const auto first = static_cast<std::ptrdiff_t>(prompt_count_ + streamed_tokens_);
  delta.tokens.assign(tokens_.begin() + first, tokens_.end());
  for (std::size_t i = static_cast<std::size_t>(streamed_tokens_); i < logprobs_.size(); ++i) {
    delta.logprobs.push_back(logprobs_[i]);
  }
  streamed_tokens_ = answer_count();
  const std::size_t settled = finished_ ? text_.size() : stops_->settled(text_);
  if (settled > streamed_bytes_) {
    delta.text = text_.substr(streamed_bytes_, settled - streamed_bytes_);
    streamed_bytes_ = settled;
  }
  return delta;
}

Answer AnswerState::take_answer() {
  DI_CHECK(finished_);
  Answer answer;
  answer.index = index_;
  answer.tokens.assign(tokens_.begin() + static_cast<std::ptrdiff_t>(prompt_count_), tokens_.end());
  answer.text = std::move(text_);
  answer.finish = finish_;
  answer.stop_text = std::move(stop_text_);
  answer.logprobs = std::move(logprobs_);
  return answer;
}

}  // namespace deepinfer
