// first_gradient: the first position in a step at which a stage's gradient consists of whole micro-batches, but not yet
// of all: every micro-batch that has begun (I or B) has ended (B or W). The noise scale compares this gradient with
// that of the step. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

struct FirstGradient {
  Op op = Op::kBackward;                    // action that ends it: B or W
  MicroBatchId last{};                      // micro-batch of that action
  std::vector<MicroBatchId> micro_batches;  // with samples, in the gradient
};

// samples: [micro-batch]. Empty if there is no such position: one micro-batch, or every W after the last I.
[[nodiscard]] std::optional<FirstGradient> first_gradient(const std::vector<Action>& actions, StageId stage,
                                                          std::span<const std::int64_t> samples);

}  // namespace sluice::pipeline
