// Exact selection of the k best of a stream of scores: ties to the lower index, result in ascending order of
// index.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace deepinfer::cpu {

/// Scores must come in ascending order of index. Keeps up to 2k of them; whenever that many have come, all
/// but the best k are dropped and the k-th becomes the threshold, so a long stream costs about one comparison
/// a score. Scores of minus infinity are never selected.
class TopK {
 public:
  struct Entry {
    float score;
    std::int32_t index;
  };
  static std::int64_t buffer_size(std::int64_t k) { return 2 * k; }

  /// `buffer` holds buffer_size(k) entries.
  TopK(Entry* buffer, std::int64_t k) : entries_(buffer), k_(k) {}

  /// Only scores above this can still be selected.
  float threshold() const { return threshold_; }

  void offer(float score, std::int64_t index) {
    if (!(score > threshold_)) return;
    entries_[count_++] = {score, static_cast<std::int32_t>(index)};
    if (count_ == 2 * k_) shrink();
  }

  /// Writes the selected indices, ascending; returns how many. The stream is over.
  std::int32_t finish(std::int32_t* out) {
    if (count_ > k_) shrink();
    std::sort(entries_, entries_ + count_, [](const Entry& a, const Entry& b) { return a.index < b.index; });
    for (std::int64_t i = 0; i < count_; ++i) out[i] = entries_[i].index;
    return static_cast<std::int32_t>(count_);
  }

 private:
  static bool better(const Entry& a, const Entry& b) {
    return a.score != b.score ? a.score > b.score : a.index < b.index;
  }
  // Later scores have higher indices, so one equal to the k-th best loses to it: the comparison above may be
  // strict.
  void shrink() {
    std::nth_element(entries_, entries_ + k_ - 1, entries_ + count_, better);
    threshold_ = entries_[k_ - 1].score;
    count_ = k_;
  }

  Entry* entries_;
  std::int64_t k_;
  std::int64_t count_ = 0;
  float threshold_ = -std::numeric_limits<float>::infinity();
};

}  // namespace deepinfer::cpu
