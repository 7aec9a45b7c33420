// first_gradient: where in a step the gradient of a stage is, for the first time, that of whole micro-batches only, and
// not yet of all: a gradient over fewer samples, which the noise scale compares with that of the step.
// Every micro-batch whose gradient has begun (I or B) has ended there (B or W). With whole backwards that is after the
// first B with samples; where several I come before their W, after the W that ends the last of them. Not here: norms.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

struct FirstGradient {
  Op op = Op::kBackward;                    // the action that ends it: B or W,
  MicroBatchId last{};                      // of this micro-batch
  std::vector<MicroBatchId> micro_batches;  // that the gradient is of, those with samples
};

// actions: of the device that owns the stage. samples: [micro-batch]; those without add nothing. Nothing where there is
// no such position: one micro-batch, or every W comes after the last I.
[[nodiscard]] std::optional<FirstGradient> first_gradient(const std::vector<Action>& actions, StageId stage,
                                                          std::span<const std::int64_t> samples);

}  // namespace sluice::pipeline
