// profile_sums: what `sluice profile` makes of what it has measured, and of which sizes it measures. Not here:
// measuring (profile.h). Pure. Units: seconds, bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "profiler/layer_profile.h"
#include "train/plan/trial_steps.h"

namespace sluice::train {

// Those with a whole batch: the last one of an epoch may be short.
[[nodiscard]] std::vector<TrialStep> whole_steps(std::vector<TrialStep> trial);

// Without predictions. Requires: a step.
[[nodiscard]] profiler::StepSummary summary_of(const std::vector<TrialStep>& trial);

// Of the weights of a stage, if all have as many: the most whose update is measured.
[[nodiscard]] std::uint64_t trained_bytes_of_stage(const std::vector<profiler::MeasuredLayer>& layers, int stages);

// Of a stage's gradients: the most whose sum is measured.
[[nodiscard]] std::uint64_t largest_bucket(std::uint64_t gradient_bytes, double bucket_mib);

}  // namespace sluice::train
