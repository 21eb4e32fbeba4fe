// The state of one constrained sequence: which tokens may come next, and what the tokens so far mean.
//
// A Matcher is a value: copying forks it (cost: its parser rows, some 10 KB to 1 MB), and it is a function of
// the grammar and the steps it took, so replay of the committed tokens gives an equal one. Every accept is
// one step; steps are undone by truncation. One thread at a time per matcher; matchers of one grammar may run
// on different threads.
//
// Contract, held by tests: compute_mask sets bit t exactly when accept_token(t) would succeed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/compiled_grammar.h"
#include "grammar/row_pool.h"

namespace deepinfer::grammar {

struct MatcherOptions {
  /// After this many tokens in a row that are nothing but white space no_progress() is true. The engine ends
  /// such a request with an error or "length"; the mask is not touched.
  std::uint32_t max_blank_tokens = 256;
};

class Matcher {
 public:
  using Options = MatcherOptions;

  explicit Matcher(GrammarPtr grammar, Options options = {});
  Matcher(const Matcher&) = default;
  Matcher& operator=(const Matcher&) = default;
  Matcher(Matcher&&) = default;
  Matcher& operator=(Matcher&&) = default;
  /// A copy that shares nothing; the name says why.
  Matcher fork() const { return *this; }
  /// A matcher after these tokens.
  static Result<Matcher> replay(GrammarPtr grammar, std::span<const TokenId> tokens, Options options = {});

  // ---- Steps. On an error the state is as before. kInvalidArgument: not allowed here; kDeadline: a limit of
  // the grammar.
  Status accept_token(TokenId token);
  /// Text without token borders (does not count against max_tokens); one step. Empty text is a step as well.
  Status accept_bytes(std::string_view bytes);
  /// Accepts tokens until the first that is not allowed; how many were taken. Drafts are cut with it.
  std::size_t accept_prefix(std::span<const TokenId> tokens);
  bool can_accept(TokenId token);

  // ---- Masks.
  /// Sets bit t of mask[t / 32] for every allowed token, clears all others. `mask` has
  /// vocabulary.mask_words() words. After the end only the EOS ids are set. An all-zero mask is never
  /// returned as success: kInternal "dead end" instead.
  Status compute_mask(std::span<std::uint32_t> mask);
  /// True when the text so far is complete; only then EOS is allowed.
  bool is_accepting() const;
  /// True after an EOS token was accepted.
  bool finished() const { return steps_.back().finished; }
  bool no_progress() const { return steps_.back().blank_run >= options_.max_blank_tokens; }
  /// Nothing but EOS can follow.
  bool is_complete() const;

  // ---- Forced text.
  /// The bytes that must come next, at most `limit` (fewer when the text may end or branch).
  std::string forced_bytes(std::size_t limit = 256);
  using Tokenize = std::function<std::vector<TokenId>(std::string_view)>;
  /// Tokens that can be appended without sampling: the tokens of the forced bytes as the tokenizer cuts them,
  /// without those at the end that a longer allowed token could replace (which would change what the model
  /// would have written).
  std::vector<TokenId> forced_tokens(const Tokenize& tokenize, std::size_t limit = 256);

  // ---- History.
  std::size_t step_count() const { return steps_.size() - 1; }
  /// Undoes the last `count` steps (all of them at most).
  void rollback(std::size_t count);
  using Checkpoint = std::size_t;
  Checkpoint checkpoint() const { return step_count(); }
  /// Back to a checkpoint of this matcher that was not rolled back before.
  void rollback_to(Checkpoint point) { rollback(step_count() - std::min(point, step_count())); }

  /// Forgets parser rows that only masks needed. Happens by itself when they take much memory.
  void sweep();

  const GrammarPtr& grammar() const { return grammar_; }
  std::size_t memory_bytes() const;

 private:
  // One way of reading the bytes since `row` began: `lexeme` has come to `state`. kAtStart: no byte yet, any
  // allowed lexeme can begin.
  static constexpr std::uint32_t kAtStart = 0xFFFFFFFFu;
  struct Thread {
    RowId row;
    std::uint32_t lexeme;
    RegexId state;
    std::uint32_t tokens;  // token borders passed inside the lexeme; only counted for lexemes with max_tokens
    bool operator==(const Thread&) const = default;
    auto operator<=>(const Thread&) const = default;
  };
  struct Step {
    std::uint32_t first_thread;  // into threads_; ends where the next step begins
    std::uint32_t blank_run;
    bool finished;
  };
  struct CachedMask {
    std::vector<Thread> threads;
    std::vector<std::uint32_t> mask;
    std::uint64_t last_use = 0;
  };
  // Masks are remembered per matcher; a copy starts without them.
  struct MaskCache {
    std::vector<CachedMask> slots;
    std::uint64_t clock = 0;
    MaskCache() = default;
    MaskCache(const MaskCache&) {}
    MaskCache& operator=(const MaskCache&) {
      slots.clear();
      return *this;
    }
    MaskCache(MaskCache&&) = default;
    MaskCache& operator=(MaskCache&&) = default;
  };

  std::span<const Thread> current() const {
    return {threads_.data() + steps_.back().first_thread, threads_.size() - steps_.back().first_thread};
  }
  bool advance(std::uint8_t byte);
  bool advance_text(std::string_view text);
  void advance_token(TokenId token);
  void cross_token_border();
  void commit(std::uint32_t blank_run, bool finished);
  Status try_token(TokenId token, bool keep);
  Status refused(TokenId token);
  Status limit_error();
  bool accepting_now(std::span<const Thread> threads) const;
  ByteSet next_bytes(std::span<const Thread> threads);
  Status mask_of(std::span<const Thread> threads, std::span<std::uint32_t> mask);
  void mask_tokens(std::span<const Thread> threads, std::uint32_t* mask) const;

  GrammarPtr grammar_;
  Options options_;
  RowPool rows_;
  std::vector<Thread> threads_;  // of all steps, one after the other
  std::vector<Step> steps_;
  std::size_t compact_at_bytes_;
  MaskCache cache_;

  // Scratch of advance().
  std::vector<Thread> now_, next_;
  std::vector<RowPool::End> ends_;
};

}  // namespace deepinfer::grammar
