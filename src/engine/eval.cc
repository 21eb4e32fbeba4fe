#include "engine/eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <random>
#include <utility>

namespace deepinfer {
namespace {

// ---- perplexity ----

struct Window {
  std::size_t document;
  std::span<const TokenId> tokens;
};

/// Sums one window's log-probabilities into the result. Entry i of `logprobs` is of position i+1.
void add_window(const Window& window, const std::vector<TokenLogprob>& logprobs,
                std::span<const std::int64_t> borders, PerplexityResult& result) {
  PerplexityBucket& document = result.documents[window.document];
  for (std::size_t i = 0; i < logprobs.size(); ++i) {
    const std::int64_t position = static_cast<std::int64_t>(i) + 1;
    const std::size_t bucket = static_cast<std::size_t>(
        std::upper_bound(borders.begin(), borders.end(), position) - borders.begin());
    for (PerplexityBucket* into : {&result.total, &result.buckets[bucket], &document}) {
      ++into->tokens;
      into->nll -= static_cast<double>(logprobs[i].logprob);
      into->to = std::max(into->to, position + 1);
    }
  }
}

// ---- determinism ----

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

std::string difference(const std::vector<TokenLogprob>& a, const std::vector<TokenLogprob>& b,
                       const std::string& what) {
  if (a.size() != b.size()) return fmt::format("{}: {} and {} log-probabilities", what, a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    bool same = a[i].token == b[i].token && same_bits(a[i].logprob, b[i].logprob) &&
                a[i].top.size() == b[i].top.size();
    for (std::size_t k = 0; same && k < a[i].top.size(); ++k) {
      same = a[i].top[k].first == b[i].top[k].first && same_bits(a[i].top[k].second, b[i].top[k].second);
    }
    if (!same) {
      return fmt::format("{} {}: token {} at {:.9g}, token {} at {:.9g}", what, i, a[i].token, a[i].logprob,
                         b[i].token, b[i].logprob);
    }
  }
  return "";
}

/// What differs between two results of one request; empty if nothing.
std::string difference(const RequestResult& a, const RequestResult& b) {
  if (a.error != b.error) return fmt::format("errors '{}' and '{}'", a.error, b.error);
  if (a.answers.size() != b.answers.size()) return "number of answers";
  for (std::size_t i = 0; i < a.answers.size(); ++i) {
    const Answer &x = a.answers[i], &y = b.answers[i];
    const auto [at, bt] = std::mismatch(x.tokens.begin(), x.tokens.end(), y.tokens.begin(), y.tokens.end());
    if (at != x.tokens.end() || bt != y.tokens.end()) {
      return fmt::format("answer {} differs from token {} on", i, at - x.tokens.begin());
    }
    if (x.text != y.text || x.finish != y.finish) return fmt::format("text or end of answer {}", i);
    if (std::string d = difference(x.logprobs, y.logprobs, fmt::format("answer {} token", i)); !d.empty())
      return d;
  }
  return difference(a.prompt_logprobs, b.prompt_logprobs, "prompt row");
}

/// Runs requests in the given order, all at once or one after the other. Results in the order of `requests`.
std::vector<RequestResult> run_all(EngineInterface& engine, std::span<const Request> requests,
                                   std::span<const std::size_t> order, bool one_by_one) {
  std::vector<RequestResult> results(requests.size());
  for (const std::size_t i : order) {
    Sink sink;
    sink.on_done = [&results, i](RequestResult&& result) { results[i] = std::move(result); };
    engine.submit(requests[i], std::move(sink));
    if (one_by_one) engine.drain();
  }
  engine.drain();
  return results;
}

}  // namespace

double PerplexityBucket::perplexity() const {
  return tokens == 0 ? 0 : std::exp(nll / static_cast<double>(tokens));
}

Result<PerplexityResult> measure_perplexity(EngineInterface& engine,
                                            std::span<const std::vector<TokenId>> documents,
                                            const PerplexityOptions& options) {
  if (!std::is_sorted(options.bucket_borders.begin(), options.bucket_borders.end())) {
    return invalid_argument("the borders are not ascending", "bucket_borders");
  }
  const std::int64_t context = engine.max_context();
  if (options.window < 0 || options.window == 1 || options.window > context) {
    return invalid_argument(
        fmt::format("{} is not 0 or in 2..{} (the engine's context)", options.window, context), "window");
  }
  const std::size_t window = static_cast<std::size_t>(options.window > 0 ? options.window : context);

  PerplexityResult result;
  result.documents.resize(documents.size());
  std::int64_t from = 1;
  for (const std::int64_t border : options.bucket_borders) {
    result.buckets.push_back({from, border, 0, 0});
    from = border;
  }
  result.buckets.push_back({from, from, 0, 0});
  std::vector<Window> windows;
  for (std::size_t d = 0; d < documents.size(); ++d) {
    const std::span<const TokenId> tokens = documents[d];
    result.documents[d].from = 1;
    for (std::size_t at = 0; at + 1 < tokens.size(); at += window) {
      windows.push_back({d, tokens.subspan(at, std::min(window, tokens.size() - at))});
    }
  }
  result.total.from = 1;

  // Sums are taken in window order, not in the order of completion: the same documents give the same digits.
  const auto start = std::chrono::steady_clock::now();
  const std::size_t group = static_cast<std::size_t>(std::max<std::int64_t>(1, options.in_flight));
  std::int64_t done_tokens = 0;
  for (std::size_t first = 0; first < windows.size(); first += group) {
    const std::size_t count = std::min(group, windows.size() - first);
    std::vector<RequestResult> results(count);
    for (std::size_t i = 0; i < count; ++i) {
      const Window& w = windows[first + i];
      Request request;
      request.id = fmt::format("document {} window {}", w.document, first + i);
      request.prompt.assign(w.tokens.begin(), w.tokens.end());
      request.sampling.max_tokens = 0;
      request.sampling.prompt_logprobs = 0;
      Sink sink;
      sink.on_done = [&, i](RequestResult&& r) {
        results[i] = std::move(r);
        done_tokens += results[i].usage.prompt_tokens;
        if (options.on_progress) options.on_progress(done_tokens);
      };
      engine.submit(std::move(request), std::move(sink));
    }
    engine.drain();
    for (std::size_t i = 0; i < count; ++i) {
      if (!results[i].error.empty()) return Error{ErrorCode::kInternal, results[i].error, results[i].id};
      add_window(windows[first + i], results[i].prompt_logprobs, options.bucket_borders, result);
    }
  }
  std::erase_if(result.buckets, [](const PerplexityBucket& bucket) { return bucket.tokens == 0; });
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

bool DeterminismResult::deterministic() const {
  return std::all_of(variants.begin(), variants.end(),
                     [](const auto& variant) { return variant.differing == 0; });
}

Result<DeterminismResult> check_determinism(const EngineFactory& factory, std::span<const Request> requests,
                                            const DeterminismOptions& options) {
  // Derived seeds come from the id, so a request keeps its seed in every variant.
  std::vector<Request> batch;
  for (std::int64_t copy = 0; copy < std::max<std::int64_t>(1, options.repeat); ++copy) {
    batch.insert(batch.end(), requests.begin(), requests.end());
  }
  std::vector<std::size_t> order(requests.size()), batch_order(batch.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (std::size_t i = 0; i < batch.size(); ++i) batch_order[i] = i;

  DeterminismResult out;
  std::vector<RequestResult> reference;
  {
    DI_ASSIGN(auto engine, factory(options.base));
    reference = run_all(*engine, requests, order, true);
  }
  for (const RequestResult& result : reference) {
    if (!result.error.empty()) return Error{ErrorCode::kInvalidArgument, result.error, result.id};
  }
  const auto compare = [&](std::string name, const EngineOptions& engine_options,
                           std::span<const std::size_t> in_order) -> Status {
    DI_ASSIGN(auto engine, factory(engine_options));
    const std::vector<RequestResult> results = run_all(*engine, batch, in_order, false);
    const std::int64_t preemptions = engine->stats().preemptions;
    if (preemptions > 0) name += fmt::format(" ({} preemptions)", preemptions);
    DeterminismVariant variant{std::move(name), 0, 0, ""};
    for (std::size_t i = 0; i < results.size(); ++i) {
      ++variant.compared;
      const std::string d = difference(reference[i % reference.size()], results[i]);
      if (d.empty()) continue;
      if (variant.differing++ == 0)
        variant.first_difference = fmt::format("request '{}': {}", batch[i].id, d);
    }
    out.variants.push_back(std::move(variant));
    return {};
  };
  DI_TRY(compare("batched", options.base, batch_order));
  std::mt19937_64 random(options.shuffle_seed);
  std::vector<std::size_t> shuffled = batch_order;
  for (std::size_t i = shuffled.size(); i > 1; --i) std::swap(shuffled[i - 1], shuffled[random() % i]);
  DI_TRY(compare("shuffled", options.base, shuffled));
  for (const std::int64_t rows : options.chunk_rows) {
    EngineOptions chunked = options.base;
    chunked.max_chunk_rows = rows;
    DI_TRY(compare(fmt::format("chunks of {}", rows), chunked, batch_order));
  }
  // As few blocks as the longest sequence needs: the others lose their cache to it again and again. Limits
  // become what was really produced, so that the small cache refuses nobody.
  std::int64_t longest = 1;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const RequestResult& result = reference[i % reference.size()];
    std::int64_t most = 0;
    for (const Answer& answer : result.answers)
      most = std::max(most, static_cast<std::int64_t>(answer.tokens.size()));
    if (batch[i].sampling.max_tokens != 0) batch[i].sampling.max_tokens = most;
    longest = std::max(longest, result.usage.prompt_tokens + most);
  }
  EngineOptions tight = options.base;
  tight.max_cache_blocks = (longest + 255) / 256;
  DI_TRY(compare("small cache", tight, shuffled));
  return out;
}

}  // namespace deepinfer
