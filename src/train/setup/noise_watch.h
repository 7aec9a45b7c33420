// noise_watch: which steps measure the gradient noise scale, the mean of the estimates, and warnings. For the norms see
// engine/noise_norms.h, for the estimator tune/noise_scale.h. Threads: one.
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

// number: of the step, from 1. every: train.noise_scale_every_steps; 0 means never.
[[nodiscard]] inline bool noise_is_due(std::int64_t number, std::int64_t every) {
  return every > 0 && number % every == 0;
}

[[nodiscard]] std::optional<tune::GradientEstimate> noise_estimate(const StepStats& stats);

// Adds a step's estimate to the mean. The estimate stands for the `every` steps since the previous one.
[[nodiscard]] std::optional<report::NoiseRecord> take_in(tune::NoiseAverage::State& mean, const StepStats& stats,
                                                         std::int64_t every);

[[nodiscard]] nlohmann::json noise_to_json(const tune::NoiseAverage::State& mean);
[[nodiscard]] tune::NoiseAverage::State noise_from_json(const nlohmann::json& json);  // throws nlohmann's exceptions

void warn_of_noise(const Setup& setup, const Plan& plan);

}  // namespace sluice::train
