// profile_sums: computes sizes to measure and results for `sluice profile`. Pure. Units: seconds, bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "profiler/layer_profile.h"
#include "train/plan/trial_steps.h"

namespace sluice::train {

// Steps with a full batch: the last one of an epoch may be short.
[[nodiscard]] std::vector<TrialStep> whole_steps(std::vector<TrialStep> trial);

[[nodiscard]] profiler::StepSummary summary_of(const std::vector<TrialStep>& trial);

// Bytes of an average stage's trained weights, limited to the most whose update is measured.
[[nodiscard]] std::uint64_t trained_bytes_of_stage(const std::vector<profiler::MeasuredLayer>& layers, int stages);

// Bytes of a stage's gradients in one bucket, limited to the most whose sum is measured.
[[nodiscard]] std::uint64_t largest_bucket(std::uint64_t gradient_bytes, double bucket_mib);

}  // namespace sluice::train
