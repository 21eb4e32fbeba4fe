#include "engine/row_math.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace deepinfer {
namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();
constexpr std::size_t kLanes = 16;  // independent partial results, folded in lane order at the end

/// Floats as integers of the same order (both zeros apart; NaN above +inf or below -inf).
std::int32_t ordered_bits(float x) {
  const std::int32_t bits = std::bit_cast<std::int32_t>(x);
  return bits ^ ((bits >> 31) & 0x7FFFFFFF);
}

/// The lowest index whose entry equals `max` as a number, so -0 and +0 tie.
TokenId first_equal(std::span<const float> row, float max) {
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (row[i] == max) return static_cast<TokenId>(i);
  }
  return -1;
}

}  // namespace

RowScan scan_row(std::span<const float> row) {
  DI_CHECK(!row.empty());
  std::array<std::int32_t, kLanes> high, low, bad{};
  high.fill(std::numeric_limits<std::int32_t>::min());
  low.fill(std::numeric_limits<std::int32_t>::max());
  const auto visit = [&](std::size_t lane, float x) {
    const std::int32_t bits = std::bit_cast<std::int32_t>(x);
    const std::int32_t key = ordered_bits(x);
    high[lane] = std::max(high[lane], key);
    low[lane] = std::min(low[lane], key);
    bad[lane] |= (bits & 0x7F800000) == 0x7F800000 ? 1 : 0;
  };
  std::size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) visit(lane, row[i + lane]);
  }
  for (; i < row.size(); ++i) visit(0, row[i]);
  const std::int32_t top = *std::max_element(high.begin(), high.end());
  const std::int32_t bottom = *std::min_element(low.begin(), low.end());
  RowScan scan;
  scan.finite = std::all_of(bad.begin(), bad.end(), [](std::int32_t b) { return b == 0; });
  if (!scan.finite) return scan;
  const auto value = [](std::int32_t key) { return std::bit_cast<float>(key ^ ((key >> 31) & 0x7FFFFFFF)); };
  scan.max = value(top);
  scan.flat = row.size() > 1 && scan.max == value(bottom);
  scan.best = first_equal(row, scan.max);
  return scan;
}

TokenId argmax_row(std::span<const float> row) {
  std::array<std::int32_t, kLanes> high;
  high.fill(ordered_bits(kNegInf));
  std::size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      high[lane] = std::max(high[lane], ordered_bits(row[i + lane]));
  }
  for (; i < row.size(); ++i) high[0] = std::max(high[0], ordered_bits(row[i]));
  const std::int32_t top = *std::max_element(high.begin(), high.end());
  const float max = std::bit_cast<float>(top ^ ((top >> 31) & 0x7FFFFFFF));
  return max == kNegInf ? -1 : first_equal(row, max);
}

double exp_sum(std::span<const float> row, float max, float scale) {
  std::array<double, kLanes> sum{};
  std::array<float, kLanes> part;
  std::size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) part[lane] = exp_fp32((row[i + lane] - max) * scale);
    for (std::size_t lane = 0; lane < kLanes; ++lane) sum[lane] += static_cast<double>(part[lane]);
  }
  for (; i < row.size(); ++i) sum[0] += static_cast<double>(exp_fp32((row[i] - max) * scale));
  double total = 0;
  for (const double s : sum) total += s;
  return total;
}

std::vector<std::pair<float, TokenId>> top_entries(std::span<const float> row, std::int64_t count) {
  using Entry = std::pair<float, TokenId>;
  const auto before = [](const Entry& a, const Entry& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  std::vector<Entry> heap;  // the worst kept entry on top
  if (count <= 0) return heap;
  const std::size_t keep = std::min<std::size_t>(static_cast<std::size_t>(count), row.size());
  heap.reserve(keep + 1);
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (heap.size() == keep && !(row[i] > heap.front().first)) continue;  // an equal value has a higher id
    heap.emplace_back(row[i], static_cast<TokenId>(i));
    std::push_heap(heap.begin(), heap.end(), before);
    if (heap.size() > keep) {
      std::pop_heap(heap.begin(), heap.end(), before);
      heap.pop_back();
    }
  }
  std::sort_heap(heap.begin(), heap.end(), before);
  return heap;
}

TokenLogprob row_logprobs(std::span<const float> row, float max, TokenId chosen, std::int64_t top_count) {
  const double log_z = std::log(exp_sum(row, max, 1.0f));
  const auto logprob = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - static_cast<double>(max) - log_z);
  };
  TokenLogprob out;
  out.token = chosen;
  out.logprob = logprob(row[static_cast<std::size_t>(chosen)]);
  for (const auto& [logit, id] : top_entries(row, top_count)) out.top.emplace_back(id, logprob(logit));
  return out;
}

}  // namespace deepinfer
