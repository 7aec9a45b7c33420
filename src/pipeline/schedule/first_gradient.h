// first_gradient: the first position in a step at which a stage's gradient consists of whole micro-batches, but not yet
// of all. The noise scale compares this gradient over fewer samples with that of the step. At this position every
// micro-batch that has begun (I or B) has ended (B or W): after the first B with samples, or, if several I come before
// their W, after the W that ends the last of them. Pure.
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

// actions: of the device that owns the stage. samples: [micro-batch]; micro-batches without samples add nothing.
// Returns nullopt if there is no such position: one micro-batch, or every W after the last I.
[[nodiscard]] std::optional<FirstGradient> first_gradient(const std::vector<Action>& actions, StageId stage,
                                                          std::span<const std::int64_t> samples);

}  // namespace sluice::pipeline
