// The router: the reference's arithmetic, rows spread over the threads.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"
#include "kernels/ref/ref.h"

namespace deepinfer::cpu {

void route(const Exec& exec, const RouteOp& op) {
  // A score takes an exponential and a logarithm in double precision.
  for_rows(exec, op.rows, 16 * op.experts, [&](std::int64_t begin, std::int64_t end) {
    RouteOp part = op;
    part.rows = end - begin;
    part.logits += begin * op.experts;
    if (op.image) part.image += begin;
    if (op.ids) part.ids += begin;
    part.chosen += begin * op.top_k;
    part.weight += begin * op.top_k;
    ref::route(exec, part);
  });
}

}  // namespace deepinfer::cpu
