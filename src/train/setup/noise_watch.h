// noise_watch: the gradient noise scale of a run: which steps are asked for their norms, the mean of their estimates
// so far, and what is said where a plan has none to give. Not here: taking norms (engine/noise_norms.h), the estimate
// and its mean (tune/noise_scale.h). Pure, but for the log. Threads: one.
#pragma once

#include <cstdint>
#include <optional>

#include <nlohmann/json.hpp>

#include "core/plan.h"
#include "core/step_stats.h"
#include "report/step_record.h"
#include "train/setup/setup.h"
#include "tune/noise_scale.h"

namespace sluice::train {

// number: of the step, from 1. every: train.noise_scale_every_steps; 0: never.
[[nodiscard]] inline bool noise_is_due(std::int64_t number, std::int64_t every) {
  return every > 0 && number % every == 0;
}

// The estimate of one step; nothing where it has no norms, or they are not finite.
[[nodiscard]] std::optional<tune::GradientEstimate> noise_estimate(const StepStats& stats);

// Takes a step's estimate into the mean, as one that stands for the `every` steps since the one before.
[[nodiscard]] std::optional<report::NoiseRecord> take_in(tune::NoiseAverage::State& mean, const StepStats& stats,
                                                         std::int64_t every);

[[nodiscard]] nlohmann::json noise_to_json(const tune::NoiseAverage::State& mean);
[[nodiscard]] tune::NoiseAverage::State noise_from_json(const nlohmann::json& json);  // throws nlohmann's exceptions

// Before the first step: where nothing will come of train.noise_scale_every_steps, and where its model does not hold.
void warn_of_noise(const Setup& setup, const Plan& plan);

}  // namespace sluice::train
