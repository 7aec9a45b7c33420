#include "pipeline/schedule/first_gradient.h"

#include <algorithm>

namespace sluice::pipeline {

std::optional<FirstGradient> first_gradient(const std::vector<Action>& actions, StageId stage,
                                            std::span<const std::int64_t> samples) {
  const auto all = std::ranges::count_if(samples, [](std::int64_t count) { return count > 0; });
  FirstGradient first;
  int open = 0;  // between I and W
  for (const Action& action : actions) {
    if (action.stage != stage || action.op == Op::kForward || action.op == Op::kReduceGradient) continue;
    if (samples[index(action.micro_batch)] == 0) continue;
    if (action.op != Op::kWeightGradient) first.micro_batches.push_back(action.micro_batch);
    if (action.op == Op::kInputGradient) ++open;
    if (action.op == Op::kWeightGradient) --open;
    if (open > 0) continue;
    if (std::ssize(first.micro_batches) == all) return std::nullopt;
    first.op = action.op;
    first.last = action.micro_batch;
    return first;
  }
  return std::nullopt;
}

}  // namespace sluice::pipeline
