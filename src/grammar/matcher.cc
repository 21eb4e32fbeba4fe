#include "grammar/matcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "grammar/mask_builder.h"

namespace deepinfer::grammar {
namespace {

constexpr std::size_t kCompactBytes = 32u << 20;  // rows beyond this are swept for those masks left behind
constexpr std::size_t kCachedMasks = 8;           // 16 KB each with a vocabulary of 128k
constexpr std::uint32_t kWorkNodes = 200'000;     // regex nodes one call may add

bool is_blank(std::string_view text) {
  return !text.empty() && text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

Matcher::Matcher(GrammarPtr grammar, Options options)
    : grammar_(std::move(grammar)), options_(options), rows_(*grammar_), compact_at_bytes_(kCompactBytes) {
  const auto guard = grammar_->lock();
  threads_.push_back({rows_.first_row(), kAtStart, 0, 0});
  steps_.push_back({0, 0, false});
}

Result<Matcher> Matcher::replay(GrammarPtr grammar, std::span<const TokenId> tokens, Options options) {
  Matcher m(std::move(grammar), options);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (const Status s = m.accept_token(tokens[i]); !s.ok())
      return s.error().at(fmt::format("token {} of {}", i + 1, tokens.size()));
  }
  return m;
}

// One byte further: now_ -> next_, then swapped. False when nothing is left.
bool Matcher::advance(std::uint8_t byte) {
  CompiledGrammar::Lazy& lazy = grammar_->lazy();
  RegexPool& regex = lazy.regex;
  next_.clear();
  ends_.clear();
  const auto step = [&](const Thread& t, std::uint32_t lexeme, RegexId from) {
    const RegexId state = regex.step(from, byte);
    if (state == kEmptyRegex) return;
    if (regex.nullable(state)) {
      ends_.push_back({t.row, lexeme});
      if (!regex.can_continue(state)) return;
    }
    next_.push_back({t.row, lexeme, state, t.tokens});
  };
  for (const Thread& t : now_) {
    if (t.lexeme != kAtStart) {
      step(t, t.lexeme, t.state);
      continue;
    }
    const LexemeSet& set = lazy.sets[rows_.lexeme_set(t.row)];
    if (!set.first.test(byte)) continue;
    for (std::uint32_t lexeme : set.lexemes) step(t, lexeme, grammar_->lexemes()[lexeme].start);
  }
  if (next_.size() > 1) {  // the same row can be begun at two places
    std::sort(next_.begin(), next_.end());
    next_.erase(std::unique(next_.begin(), next_.end()), next_.end());
  }
  if (!ends_.empty()) {
    if (ends_.size() > 1) {
      std::sort(ends_.begin(), ends_.end(), [](const auto& a, const auto& b) {
        return a.row != b.row ? a.row < b.row : a.lexeme < b.lexeme;
      });
      ends_.erase(std::unique(ends_.begin(), ends_.end()), ends_.end());
    }
    const RowId row = ends_.size() == 1 ? rows_.scan(ends_[0].row, ends_[0].lexeme) : rows_.scan(ends_);
    if (row != kNoRow) next_.push_back({row, kAtStart, 0, 0});
  }
  std::swap(now_, next_);
  return !now_.empty() && now_.size() <= grammar_->limits().max_threads;
}

bool Matcher::advance_text(std::string_view text) {
  const auto c = current();
  now_.assign(c.begin(), c.end());
  for (char b : text)
    if (!advance(static_cast<std::uint8_t>(b))) return false;
  return true;
}

// Token lexemes are read at rows where they are allowed; what they lead to joins now_.
void Matcher::advance_token(TokenId token) {
  ends_.clear();
  for (const Thread& t : current()) {
    if (t.lexeme != kAtStart) continue;
    for (std::uint32_t lexeme : grammar_->lazy().sets[rows_.lexeme_set(t.row)].tokens)
      if (grammar_->lexemes()[lexeme].takes(token, *grammar_->vocabulary())) ends_.push_back({t.row, lexeme});
  }
  if (ends_.empty()) return;
  const Thread fresh{rows_.scan(ends_), kAtStart, 0, 0};
  if (fresh.row != kNoRow && std::find(now_.begin(), now_.end(), fresh) == now_.end()) now_.push_back(fresh);
}

// Lexemes with a token limit: count this border, and end those that used theirs up.
void Matcher::cross_token_border() {
  ends_.clear();
  std::size_t kept = 0;
  for (Thread& t : now_) {
    if (t.lexeme != kAtStart && grammar_->lexemes()[t.lexeme].max_tokens > 0) {
      if (++t.tokens >= grammar_->lexemes()[t.lexeme].max_tokens) {
        ends_.push_back({t.row, t.lexeme});
        continue;
      }
    }
    now_[kept++] = t;
  }
  if (kept == now_.size()) return;
  now_.resize(kept);
  const RowId row = rows_.scan(ends_);
  const Thread fresh{row, kAtStart, 0, 0};
  if (row != kNoRow && std::find(now_.begin(), now_.end(), fresh) == now_.end()) now_.push_back(fresh);
}

void Matcher::commit(std::uint32_t blank_run, bool finished) {
  steps_.push_back({static_cast<std::uint32_t>(threads_.size()), blank_run, finished});
  threads_.insert(threads_.end(), now_.begin(), now_.end());
  if (rows_.memory_bytes() >= compact_at_bytes_) sweep();
}

Status Matcher::limit_error() {
  if (rows_.error()) {
    const Error e = *rows_.error();
    rows_.clear_error();
    return e;
  }
  if (grammar_->lazy().regex.exceeded()) {
    grammar_->note_exhausted();
    return Error{ErrorCode::kDeadline, "the grammar's regular expressions need too many states", {}};
  }
  if (now_.size() > grammar_->limits().max_threads)
    return Error{
        ErrorCode::kDeadline, "the grammar is too ambiguous: the text can be split in too many ways", {}};
  return {};
}

Status Matcher::refused(TokenId token) {
  return invalid_argument(fmt::format("token {} is not allowed by the grammar here", token),
                          fmt::format("step {}", step_count()));
}

Status Matcher::try_token(TokenId token, bool keep) {
  const Vocabulary& vocabulary = *grammar_->vocabulary();
  if (token < 0 || static_cast<std::size_t>(token) >= vocabulary.token_count()) return refused(token);
  if (finished()) {
    if (!vocabulary.is_eos(token)) return refused(token);
    if (keep) {
      now_.clear();
      commit(0, true);
    }
    return {};
  }
  const auto guard = grammar_->lock();
  grammar_->lazy().regex.grant(kWorkNodes);
  std::uint32_t blank_run = 0;
  const std::string_view text = vocabulary.text(token);
  if (text.empty()) {
    now_.clear();
  } else {
    if (!advance_text(text)) {
      DI_TRY(limit_error());
      now_.clear();
    }
    if (is_blank(text)) blank_run = steps_.back().blank_run + 1;
  }
  advance_token(token);
  if (now_.empty()) {
    DI_TRY(limit_error());
    // A grammar that names an EOS token as a symbol means the symbol where it is allowed.
    if (!vocabulary.is_eos(token) || !accepting_now(current())) return refused(token);
    if (keep) commit(0, true);
    return {};
  }
  DI_TRY(limit_error());
  if (keep) {
    cross_token_border();
    commit(blank_run, false);
  }
  return {};
}

Status Matcher::accept_token(TokenId token) {
  return try_token(token, true);
}
bool Matcher::can_accept(TokenId token) {
  return try_token(token, false).ok();
}

Status Matcher::accept_bytes(std::string_view bytes) {
  if (finished()) return invalid_argument("the text has ended", fmt::format("step {}", step_count()));
  const auto guard = grammar_->lock();
  grammar_->lazy().regex.grant(kWorkNodes);
  const auto c = current();
  now_.assign(c.begin(), c.end());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if ((i & 4095) == 4095) grammar_->lazy().regex.grant(kWorkNodes);
    if (!advance(static_cast<std::uint8_t>(bytes[i]))) {
      DI_TRY(limit_error());
      return invalid_argument("the text is not allowed by the grammar", fmt::format("byte {}", i));
    }
  }
  DI_TRY(limit_error());
  commit(0, false);
  return {};
}

std::size_t Matcher::accept_prefix(std::span<const TokenId> tokens) {
  std::size_t taken = 0;
  while (taken < tokens.size() && accept_token(tokens[taken]).ok()) ++taken;
  return taken;
}

bool Matcher::accepting_now(std::span<const Thread> threads) const {
  return std::any_of(threads.begin(), threads.end(),
                     [this](const Thread& t) { return t.lexeme == kAtStart && rows_.accepting(t.row); });
}

bool Matcher::is_accepting() const {
  return finished() || accepting_now(current());
}

bool Matcher::is_complete() const {
  if (finished()) return true;
  const auto guard = grammar_->lock();
  for (const Thread& t : current()) {
    if (t.lexeme != kAtStart) return false;
    const LexemeSet& set = grammar_->lazy().sets[rows_.lexeme_set(t.row)];
    if (!set.lexemes.empty() || !set.tokens.empty()) return false;
  }
  return true;
}

void Matcher::rollback(std::size_t count) {
  count = std::min(count, step_count());
  if (count == 0) return;
  threads_.resize(steps_[steps_.size() - count].first_thread);
  steps_.resize(steps_.size() - count);
}

void Matcher::mask_tokens(std::span<const Thread> threads, std::uint32_t* mask) const {
  const Vocabulary& vocabulary = *grammar_->vocabulary();
  const auto allow = [mask](TokenId id) { mask[static_cast<std::size_t>(id) >> 5] |= 1u << (id & 31); };
  for (const Thread& t : threads) {
    if (t.lexeme != kAtStart) continue;
    for (std::uint32_t lexeme : grammar_->lazy().sets[rows_.lexeme_set(t.row)].tokens) {
      const CompiledGrammar::LexemeTable& table = grammar_->lexemes()[lexeme];
      if (!table.except) {
        std::for_each(table.tokens.begin(), table.tokens.end(), allow);
        continue;
      }
      for (std::size_t id = 0; id < vocabulary.token_count(); ++id)
        if (table.takes(static_cast<TokenId>(id), vocabulary)) allow(static_cast<TokenId>(id));
    }
  }
  if (accepting_now(threads))
    std::for_each(vocabulary.eos_tokens().begin(), vocabulary.eos_tokens().end(), allow);
}

Status Matcher::compute_mask(std::span<std::uint32_t> mask) {
  const Vocabulary& vocabulary = *grammar_->vocabulary();
  DI_CHECK(mask.size() == vocabulary.mask_words(), "mask of ", mask.size(), " words, ",
           vocabulary.mask_words(), " expected");
  if (finished()) {
    std::fill(mask.begin(), mask.end(), 0u);
    for (TokenId id : vocabulary.eos_tokens()) mask[static_cast<std::size_t>(id) >> 5] |= 1u << (id & 31);
    return {};
  }
  const auto threads = current();
  ++cache_.clock;
  for (CachedMask& slot : cache_.slots) {
    if (std::ranges::equal(slot.threads, threads)) {
      slot.last_use = cache_.clock;
      std::memcpy(mask.data(), slot.mask.data(), mask.size_bytes());
      return {};
    }
  }
  DI_TRY(mask_of(threads, mask));
  if (threads.size() <= 64) {
    if (cache_.slots.size() < kCachedMasks) cache_.slots.emplace_back();
    CachedMask& slot =
        *std::min_element(cache_.slots.begin(), cache_.slots.end(),
                          [](const CachedMask& a, const CachedMask& b) { return a.last_use < b.last_use; });
    slot.threads.assign(threads.begin(), threads.end());
    slot.mask.assign(mask.begin(), mask.end());
    slot.last_use = cache_.clock;
  }
  return {};
}

Status Matcher::mask_of(std::span<const Thread> threads, std::span<std::uint32_t> mask) {
  const auto guard = grammar_->lock();
  grammar_->lazy().regex.grant(kWorkNodes);
  std::fill(mask.begin(), mask.end(), 0u);
  MaskBuilder builder(*grammar_, rows_, mask.data());
  for (const Thread& t : threads) {
    if (t.lexeme == kAtStart) {
      builder.add_row(t.row);
    } else {
      builder.add_lexeme(t.row, t.lexeme, t.state);
    }
  }
  DI_TRY(builder.finish());
  now_.clear();
  DI_TRY(limit_error());
  mask_tokens(threads, mask.data());
  if (std::all_of(mask.begin(), mask.end(), [](std::uint32_t w) { return w == 0; }))
    return Error{ErrorCode::kInternal,
                 "the grammar has come to a dead end: no token is allowed and the text is not complete",
                 fmt::format("step {}", step_count())};
  return {};
}

ByteSet Matcher::next_bytes(std::span<const Thread> threads) {
  ByteSet out;
  CompiledGrammar::Lazy& lazy = grammar_->lazy();
  for (const Thread& t : threads) {
    if (t.lexeme == kAtStart) {
      out |= lazy.sets[rows_.lexeme_set(t.row)].first;
    } else {
      out |= lazy.regex.first_bytes(t.state);
    }
  }
  return out;
}

std::string Matcher::forced_bytes(std::size_t limit) {
  std::string out;
  if (finished()) return out;
  const auto guard = grammar_->lock();
  const auto c = current();
  now_.assign(c.begin(), c.end());
  while (out.size() < limit && !accepting_now(now_)) {
    for (const Thread& t : now_) {
      if (t.lexeme != kAtStart) {
        if (grammar_->lexemes()[t.lexeme].max_tokens > 0) return out;
      } else if (!grammar_->lazy().sets[rows_.lexeme_set(t.row)].tokens.empty()) {
        return out;
      }
    }
    const ByteSet bytes = next_bytes(now_);
    if (bytes.count() != 1) break;
    const std::uint8_t b = bytes.first();
    if (!advance(b)) break;
    out.push_back(static_cast<char>(b));
  }
  return out;
}

std::vector<TokenId> Matcher::forced_tokens(const Tokenize& tokenize, std::size_t limit) {
  const std::string forced = forced_bytes(limit);
  if (forced.empty()) return {};
  std::vector<TokenId> tokens = tokenize(forced);
  const Vocabulary& vocabulary = *grammar_->vocabulary();
  std::size_t length = 0;
  for (TokenId t : tokens) length += vocabulary.text(t).size();
  if (length != forced.size()) return {};  // the tokenizer changed the text: nothing can be said
  // A longer token that begins inside the forced bytes and goes on beyond them in an allowed way is what the
  // tokenizer might have chosen had it known what follows: tokens are kept only up to the first place where
  // one begins.
  const auto guard = grammar_->lock();
  if (!advance_text(forced)) return {};
  const std::vector<Thread> behind = now_;
  const ByteSet next = next_bytes(behind);
  std::size_t safe = forced.size();
  for (std::size_t begin = forced.size() > kMaxTokenBytes ? forced.size() - kMaxTokenBytes : 0; begin < safe;
       ++begin) {
    const std::string_view rest = std::string_view(forced).substr(begin);
    const TokenTrie::Node* nodes = vocabulary.trie()->data();
    std::uint32_t at = 0, end = vocabulary.trie()->node_count();
    bool found = true;
    for (char c : rest) {
      while (at < end && nodes[at].byte != static_cast<std::uint8_t>(c)) at += nodes[at].subtree;
      if (at >= end) {
        found = false;
        break;
      }
      end = at + nodes[at].subtree;
      ++at;
    }
    for (std::uint32_t n = at; found && n < end && safe > begin;) {
      if (nodes[n].depth == rest.size() + 1 && !next.test(nodes[n].byte)) {
        n += nodes[n].subtree;
        continue;
      }
      for (TokenId t : vocabulary.trie()->tokens_of(n)) {
        now_ = behind;
        bool allowed = true;
        for (char c : vocabulary.text(t).substr(rest.size()))
          allowed = allowed && advance(static_cast<std::uint8_t>(c));
        if (allowed) safe = begin;
      }
      ++n;
    }
  }
  std::size_t kept = 0;
  for (std::size_t end = 0; kept < tokens.size(); ++kept) {
    end += vocabulary.text(tokens[kept]).size();
    if (end > safe) break;
  }
  tokens.resize(kept);
  return tokens;
}

void Matcher::sweep() {
  std::vector<RowId*> roots;
  for (Thread& t : threads_) roots.push_back(&t.row);
  rows_.compact(roots);
  cache_.slots.clear();
  compact_at_bytes_ = std::max(kCompactBytes, rows_.memory_bytes() * 2);
}

std::size_t Matcher::memory_bytes() const {
  return sizeof(*this) + rows_.memory_bytes() + threads_.capacity() * sizeof(Thread) +
         steps_.capacity() * sizeof(Step) + cache_.slots.size() * grammar_->vocabulary()->mask_words() * 4;
}

}  // namespace deepinfer::grammar
