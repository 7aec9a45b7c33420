// divergence: finds the reason for a loss or gradient that is not finite, and says what to do: bad samples, weights
// that the last update ruined, numbers too large for the precision, or a learning rate that is too high. train_step.h
// detects such a loss.
// Threads: one. In a run of several processes all call it, and all throw the same kind of error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/compose.h"
#include "pipeline/micro_batch.h"

namespace sluice::engine {

// "sample 12 has 1 NaN among its inputs"; empty if all inputs are finite or are tokens. The number is the sample's
// position in the data set.
[[nodiscard]] std::string not_finite_inputs(const pipeline::MicroBatch& batch);

// Advice for updates that are too large: "lower train.lr (0.25 in this step) or raise train.warmup_steps".
[[nodiscard]] std::string smaller_updates_advice(std::optional<double> lr = {});

struct DivergedStep {
  std::int64_t step = 0;  // number of the optimizer step, from 0
  double lr = 0;
  std::string what;  // for example "the loss is NaN"
};

// Throws DataError if the batch share of some process is not finite, else DivergedError. Call before the update of that
// step.
[[noreturn]] void throw_divergence(const Composition& composition, const pipeline::MicroBatch& share,
                                   const DivergedStep& at);

}  // namespace sluice::engine
