// divergence: what is behind a loss, or a gradient, that is not finite, and what to do: bad samples, weights that the
// last update ruined, numbers too large for the precision, or a learning rate that is too high.
// Not here: finding that it is not finite (train_step.h), the checkpoint to go back to (train/run/loop.h).
// Threads: one; of several processes all call it, and end with the same kind of error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/compose.h"
#include "pipeline/micro_batch.h"

namespace sluice::engine {

// "sample 12 has 1 NaN among its inputs"; empty where all inputs are finite, or are tokens. A sample is
// named by its position in the data set.
[[nodiscard]] std::string not_finite_inputs(const pipeline::MicroBatch& batch);

// What helps where the updates were too large: "lower train.lr (0.25 in this step) or raise train.warmup_steps".
[[nodiscard]] std::string smaller_updates_advice(std::optional<double> lr = {});

// What was done when the loss was not finite.
struct DivergedStep {
  std::int64_t step = 0;  // number of the optimizer step, from 0
  double lr = 0;
  std::string what;  // "the loss is NaN"
};

// DataError where a process's share of the batch is not finite, else DivergedError. Before the update of that step.
[[noreturn]] void throw_divergence(const Composition& composition, const pipeline::MicroBatch& share,
                                   const DivergedStep& at);

}  // namespace sluice::engine
