// what_if: predicts plan, step time and memory of a configuration from a profile (profiler/layer_profile.h), without a
// model, data or devices. Used by `sluice simulate` and `sluice tune`. Threads: any. Errors: ConfigError. It logs
// warnings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/plan.h"
#include "models/model.h"
#include "profiler/layer_profile.h"
#include "tune/make_plan.h"
#include "tune/predict.h"

namespace sluice::train {

struct WhatIf {
  Plan plan;
  tune::StepPrediction step;
  double samples_per_s = 0;                 // of all workers together if there is a parameter server
  double network_bytes = 0;                 // pushed and pulled by one worker per step; 0 without a server
  std::vector<std::uint64_t> device_bytes;  // peak of each device of a replica
  std::uint64_t memory_limit = 0;
};

// What to predict besides whole steps of one process that has the machine to itself.
struct PredictionScope {
  double cores_share = 1;    // this process's fraction of the machine's cores
  bool with_loading = true;  // false: the batch is ready
};

// Threads per CPU device in a run on the profile's machine (device/cpu_threads.h).
[[nodiscard]] int threads_of_device(const config::Config& config, const profiler::LayerProfile& profile);

[[nodiscard]] tune::PlanRequest request_by_profile(const config::Config& config, const profiler::LayerProfile& profile,
                                                   int processes);

[[nodiscard]] tune::StepOverheads overheads_by_profile(const config::Config& config,
                                                       const profiler::LayerProfile& profile, const Plan& plan,
                                                       int processes);

[[nodiscard]] tune::StepPrediction predict_by_profile(const config::Config& config,
                                                      const profiler::LayerProfile& profile, const Plan& plan,
                                                      int processes, const PredictionScope& scope = {});

// The profile for this configuration. Drops loading with a warning if the samples are made differently. ConfigError if
// model, precision, batch normalisation or threads per device differ. file: the profile's, for messages.
[[nodiscard]] profiler::LayerProfile fitted_profile(const config::Config& config, profiler::LayerProfile profile,
                                                    const std::string& file);

// The model of the profile, without its paths: a profile has the content of model.config and the digest of model.file.
[[nodiscard]] models::ModelOptions measured_model(const config::Config& config, const profiler::LayerProfile& profile);

// "device 1 needs 31.2 GiB of 24.0 GiB"; empty if all fit or there is no limit.
[[nodiscard]] std::string memory_excess(const WhatIf& answer);

[[nodiscard]] WhatIf what_if(const config::Config& config, const profiler::LayerProfile& profile, int processes = 1);

}  // namespace sluice::train
