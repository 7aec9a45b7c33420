// divergence: finds the reason for a loss or gradient that is not finite: bad samples, weights that the last update
// ruined, numbers too large for the precision, or a learning rate that is too high. Threads: one. In a run of several
// processes all call it, and all throw the same kind of error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/compose.h"
#include "pipeline/micro_batch.h"

namespace sluice::engine {

// For example "sample 12 has 1 NaN among its inputs" (or targets); 12 is the position in the data set. Empty if all
// values are finite.
[[nodiscard]] std::string not_finite_sample(const pipeline::MicroBatch& batch);

[[nodiscard]] std::string smaller_updates_advice(std::optional<double> lr = {});

struct DivergedStep {
  std::int64_t step = 0;  // number of the optimizer step, from 0
  double lr = 0;
  std::string what;  // for example "the loss is NaN"
};

// DataError if the batch share of some process is not finite, else DivergedError. Call before the step's update.
[[noreturn]] void throw_divergence(const Composition& composition, const pipeline::MicroBatch& share,
                                   const DivergedStep& at);

}  // namespace sluice::engine
