#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "engine/row_math.h"

namespace deepinfer {
namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();
constexpr float kLowestUniform = 4.656612873e-10f;          // 2^-31
constexpr float kHighestUniform = 1.0f - 5.9604644775e-8f;  // 1 - 2^-24
constexpr float kMaxGumbel = 21.5f;                         // gumbel() at kLowestUniform is 21.4876

/// 31 random bits as a number in [2^-31, 1 - 2^-24].
inline float uniform(std::uint32_t word) {
  const float u = static_cast<float>(static_cast<std::int32_t>(word >> 1)) * kLowestUniform;
  const float low = u > kLowestUniform ? u : kLowestUniform;
  return low < kHighestUniform ? low : kHighestUniform;
}

/// (value descending, id ascending): the one order of candidates.
struct RankBefore {
  bool operator()(const std::pair<float, TokenId>& a, const std::pair<float, TokenId>& b) const {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  }
};

bool filters(const SamplingParams& params, std::size_t vocab) {
  return (params.top_k > 0 && static_cast<std::size_t>(params.top_k) < vocab) || params.top_p < 1.0 ||
         params.min_p > 0.0;
}

/// Brings the first `count` candidates into rank order at the front; entries before `sorted` are already
/// there.
void rank_first(std::vector<std::pair<float, TokenId>>& candidates, std::size_t sorted, std::size_t count) {
  const auto from = candidates.begin() + static_cast<std::ptrdiff_t>(sorted);
  const auto to = candidates.begin() + static_cast<std::ptrdiff_t>(count);
  if (to != candidates.end()) std::nth_element(from, to, candidates.end(), RankBefore{});
  std::sort(from, to, RankBefore{});
}

}  // namespace

void TokenCounts::remove_answer(TokenId token) {
  const auto it = counts_.find(token);
  DI_CHECK(it != counts_.end() && it->second.answer > 0);
  if (--it->second.answer == 0 && it->second.prompt == 0) counts_.erase(it);
}

bool needs_counts(const SamplingParams& params) {
  return params.repetition_penalty != 1.0 || params.presence_penalty != 0.0 ||
         params.frequency_penalty != 0.0;
}

float inverse_temperature(const SamplingParams& params) {
  return static_cast<float>(1.0 / std::max(params.temperature, 1e-6));
}

float gumbel(std::uint32_t word) {
  const double u = static_cast<double>(uniform(word));
  return static_cast<float>(-std::log(-std::log1p(-u)));
}

void process_row(std::span<float> row, const DrawInputs& inputs) {
  const SamplingParams& params = *inputs.params;
  if (needs_counts(params)) {
    DI_CHECK(inputs.counts != nullptr);
    const float repetition = static_cast<float>(params.repetition_penalty);
    for (const auto& [token, count] : inputs.counts->all()) {
      float& logit = row[static_cast<std::size_t>(token)];
      logit = logit > 0 ? logit / repetition : logit * repetition;
      if (count.answer > 0) {
        logit -= static_cast<float>(params.frequency_penalty * count.answer + params.presence_penalty);
      }
    }
  }
  for (const auto& [token, bias] : params.logit_bias) row[static_cast<std::size_t>(token)] += bias;
  if (!inputs.allowed.empty()) {
    for (std::size_t word = 0; word * 32 < row.size(); ++word) {
      const std::uint32_t bits = inputs.allowed[word];
      if (bits == 0xFFFFFFFF) continue;
      const std::size_t end = std::min(row.size(), word * 32 + 32);
      for (std::size_t v = word * 32; v < end; ++v) {
        if ((bits >> (v % 32) & 1) == 0) row[v] = kNegInf;
      }
    }
  }
  for (const TokenId token : inputs.banned) row[static_cast<std::size_t>(token)] = kNegInf;
}

const std::vector<std::pair<float, TokenId>>& Sampler::survivors(std::span<const float> row,
                                                                 const SamplingParams& params) {
  scratch_.clear();
  const TokenId best = argmax_row(row);
  if (best < 0) return scratch_;
  const float max = row[static_cast<std::size_t>(best)];
  const float scale = inverse_temperature(params);
  const bool cuts_p = params.top_p < 1.0;
  const bool cuts_k = params.top_k > 0 && static_cast<std::size_t>(params.top_k) < row.size();
  auto& candidates = scratch_;

  // Scaled logits below `floor` are certainly out: min-p says so, or (with top-p alone) all of them together
  // weigh less than the tail that top-p drops.
  float floor = params.min_p > 0 ? static_cast<float>(std::log(params.min_p)) : kNegInf;
  double total = 0;  // of what top-k leaves
  if (cuts_k) {
    if (params.top_k <= 1024) {
      candidates = top_entries(row, params.top_k);
      while (candidates.back().first == kNegInf) candidates.pop_back();
    } else {
      for (std::size_t v = 0; v < row.size(); ++v) {
        if (row[v] != kNegInf) candidates.emplace_back(row[v], static_cast<TokenId>(v));
      }
      rank_first(candidates, 0, std::min(candidates.size(), static_cast<std::size_t>(params.top_k)));
      candidates.resize(std::min(candidates.size(), static_cast<std::size_t>(params.top_k)));
    }
    for (auto& candidate : candidates) candidate.first = (candidate.first - max) * scale;
    if (cuts_p) {
      for (const auto& candidate : candidates) total += static_cast<double>(exp_fp32(candidate.first));
    }
  } else {
    if (cuts_p) {
      total = exp_sum(row, max, scale);
      const double tail = (1.0 - params.top_p) * total / static_cast<double>(row.size());
      floor = std::max(floor, static_cast<float>(std::log(tail)) - 1e-3f);
    }
    for (std::size_t v = 0; v < row.size(); ++v) {
      const float s = (row[v] - max) * scale;
      if (s >= floor && row[v] != kNegInf) candidates.emplace_back(s, static_cast<TokenId>(v));
    }
  }
  std::size_t kept = candidates.size();
  if (cuts_p) {
    const double wanted = params.top_p * total;
    double mass = 0;
    std::size_t sorted = 0;
    for (kept = 0; kept < candidates.size() && (kept == 0 || mass < wanted); ++kept) {
      if (kept == sorted) {  // rank more only as far as needed
        const std::size_t next = std::min(candidates.size(), std::max<std::size_t>(64, sorted * 4));
        rank_first(candidates, sorted, next);
        sorted = next;
      }
      mass += static_cast<double>(exp_fp32(candidates[kept].first));
    }
  }
  candidates.resize(kept);
  if (!cuts_p && !cuts_k) std::sort(candidates.begin(), candidates.end(), RankBefore{});
  if (params.min_p > 0) {
    const float limit = static_cast<float>(std::log(params.min_p));
    while (candidates.size() > 1 && candidates.back().first < limit) candidates.pop_back();
  }
  return candidates;
}

/// argmax of scaled logit + noise over a whole row. Exact: a token's noise is worked out only if it could
/// still win, which follows from G(u) <= -log(u) and G <= kMaxGumbel.
TokenId Sampler::gumbel_all(std::span<const float> row, TokenId best, float max, float scale,
                            const DrawInputs& inputs) {
  const auto words = [&](std::size_t group) {
    return token_words(inputs.seed, static_cast<std::uint32_t>(group), inputs.position, inputs.stream);
  };
  const std::size_t start = static_cast<std::size_t>(best);
  TokenId winner = best;
  float score = gumbel(words(start / 4)[start % 4]);  // its scaled logit is 0
  constexpr std::size_t kGroups = 16, kTokens = 4 * kGroups;
  std::array<float, kTokens> scaled;
  std::uint32_t random[4][kGroups];
  for (std::size_t first = 0; first < row.size(); first += kTokens) {
    const std::size_t count = std::min(kTokens, row.size() - first);
    for (std::size_t i = 0; i < count; ++i) scaled[i] = (row[first + i] - max) * scale;
    for (std::size_t i = count; i < kTokens; ++i) scaled[i] = kNegInf;
    std::array<float, 16> highest;
    for (std::size_t i = 0; i < 16; ++i) {
      highest[i] = std::max(std::max(scaled[i], scaled[i + 16]), std::max(scaled[i + 32], scaled[i + 48]));
    }
    if (*std::max_element(highest.begin(), highest.end()) + kMaxGumbel < score) continue;
    token_words_block(inputs.seed, static_cast<std::uint32_t>(first / 4), inputs.position, inputs.stream,
                      random);
    std::array<float, kTokens> noise;  // u, and how much too large it is for the token to win
    for (std::size_t g = 0; g < kGroups; ++g) {
      for (std::size_t i = 0; i < 4; ++i) noise[4 * g + i] = uniform(random[i][g]);
    }
    for (std::size_t i = 0; i < kTokens; ++i) noise[i] -= exp_fp32(scaled[i] - score) * 1.01f;
    for (std::size_t i = 0; i < count; ++i) {
      if (noise[i] > 0) continue;
      const TokenId token = static_cast<TokenId>(first + i);
      const float challenge = scaled[i] + gumbel(random[i % 4][i / 4]);
      if (challenge > score || (challenge == score && token < winner)) {
        winner = token;
        score = challenge;
      }
    }
  }
  return winner;
}

Result<Draw> Sampler::draw(std::span<float> row, const DrawInputs& inputs) {
  const SamplingParams& params = *inputs.params;
  const RowScan scan = scan_row(row);
  if (!scan.finite) return Error{ErrorCode::kInternal, "the model produced logits that are not finite", {}};
  if (scan.flat) return Error{ErrorCode::kInternal, "the model produced logits that are all equal", {}};

  const bool plain =
      !needs_counts(params) && params.logit_bias.empty() && inputs.allowed.empty() && inputs.banned.empty();
  // The chosen token is known only at the end, but its log-probability belongs to the row as it is now.
  double log_z = 0;
  std::vector<std::pair<float, TokenId>> top;
  std::vector<float> raw;
  if (inputs.logprobs >= 0) {
    log_z = std::log(exp_sum(row, scan.max, 1.0f));
    top = top_entries(row, inputs.logprobs);
    if (!plain) raw.assign(row.begin(), row.end());
  }

  Draw draw;
  TokenId best = scan.best;
  if (!plain) {
    process_row(row, inputs);
    best = argmax_row(row);
    if (best < 0)
      return Error{ErrorCode::kInternal, "the constraints of this request allow no token here", {}};
  }
  draw.token = best;
  if (params.temperature > 0) {
    const float max = row[static_cast<std::size_t>(best)];
    if (!filters(params, row.size())) {
      draw.token = gumbel_all(row, best, max, inverse_temperature(params), inputs);
    } else {
      float score = kNegInf;
      for (const auto& [scaled, token] : survivors(row, params)) {
        if (scaled + kMaxGumbel < score) break;  // in rank order: nobody later can win
        const std::uint32_t id = static_cast<std::uint32_t>(token);
        const float challenge =
            scaled + gumbel(token_words(inputs.seed, id / 4, inputs.position, inputs.stream)[id % 4]);
        if (challenge > score || (challenge == score && token < draw.token)) {
          score = challenge;
          draw.token = token;
        }
      }
    }
  }

  if (inputs.logprobs >= 0) {
    const auto logprob = [&](float logit) {
      return static_cast<float>(static_cast<double>(logit) - static_cast<double>(scan.max) - log_z);
    };
    const std::size_t chosen = static_cast<std::size_t>(draw.token);
    draw.logprob.token = draw.token;
    draw.logprob.logprob = logprob(raw.empty() ? row[chosen] : raw[chosen]);
    for (const auto& [logit, id] : top) draw.logprob.top.emplace_back(id, logprob(logit));
  }
  return draw;
}

}  // namespace deepinfer
