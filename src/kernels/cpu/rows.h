// How operators that treat rows one by one are spread over the threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "base/thread_pool.h"
#include "kernels/ops.h"

namespace deepinfer::cpu {

/// body(begin, end) for pieces of [0, rows); `cost` is roughly the number of elements a row touches. Little
/// work stays on the calling thread: waking another takes as long as some ten thousand elements.
template <class Body>
void for_rows(const Exec& exec, std::int64_t rows, std::int64_t cost, const Body& body) {
  constexpr std::int64_t kPiece = 1 << 14;
  cost = std::max<std::int64_t>(cost, 1);
  if (rows * cost < 2 * kPiece) {
    if (rows > 0) body(std::int64_t{0}, rows);
    return;
  }
  const auto piece = [&body](std::int64_t begin, std::int64_t end, int) { body(begin, end); };
  exec.threads->parallel_for(rows, std::max<std::int64_t>(1, kPiece / cost), piece);
}

}  // namespace deepinfer::cpu
