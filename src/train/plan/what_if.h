// what_if: a configuration's plan, step time and memory by a profile (profiler/layer_profile.h), on a machine that need
// not be there: no model is made, no data set opened, no device asked for. `sluice simulate CONFIG --profile FILE`, and
// what `sluice tune` searches with. Not here: larger clusters (tune/cluster.h), the search (tune/plan_search.h), runs.
// Pure, but for warnings that it logs. Units: seconds, bytes. Threads: any. Errors: ConfigError names the key or the
// field of the profile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/plan.h"
#include "profiler/layer_profile.h"
#include "tune/make_plan.h"
#include "tune/predict.h"

namespace sluice::train {

struct WhatIf {
  Plan plan;
  tune::StepPrediction step;
  double samples_per_s = 0;                 // of all workers together, with a parameter server
  double network_bytes = 0;                 // that one worker pushes and pulls in a step; 0 without a parameter server
  std::vector<std::uint64_t> device_bytes;  // of a replica's devices, the most that each holds at once
  std::uint64_t memory_limit = 0;           // device.memory_limit; 0: none
};

// What to predict, if not whole steps of one process that has the machine alone.
struct PredictionScope {
  double cores_share = 1;    // of the machine's cores, what this process has
  bool with_loading = true;  // false: the batch is there
};

// Of a CPU device, as a run on the profile's machine would have it (device/cpu_threads.h).
[[nodiscard]] int threads_of_device(const config::Config& config, const profiler::LayerProfile& profile);

// What the configuration settles and leaves open. processes: of the run.
[[nodiscard]] tune::PlanRequest request_by_profile(const config::Config& config, const profiler::LayerProfile& profile,
                                                   int processes);

// What the links, the optimizer and the devices of a profile cost a step of this plan.
[[nodiscard]] tune::StepOverheads overheads_by_profile(const config::Config& config,
                                                       const profiler::LayerProfile& profile, const Plan& plan,
                                                       int processes);

// A step of this plan. Every prediction by a profile is made here: of `sluice simulate`, of a run, of advice.
[[nodiscard]] tune::StepPrediction predict_by_profile(const config::Config& config,
                                                      const profiler::LayerProfile& profile, const Plan& plan,
                                                      int processes, const PredictionScope& scope = {});

// The profile as it holds for this configuration: with a warning without loading, where it has loaded other samples.
// ConfigError where it is of another model, precision or batch normalisation, or of another number of threads a device.
// file: the profile's, for messages.
[[nodiscard]] profiler::LayerProfile fitted_profile(const config::Config& config, profiler::LayerProfile profile,
                                                    const std::string& file);

// "device 1 needs 31.2 GiB of 24.0 GiB"; empty: all have room, or there is no limit.
[[nodiscard]] std::string memory_excess(const WhatIf& answer);

[[nodiscard]] WhatIf what_if(const config::Config& config, const profiler::LayerProfile& profile, int processes = 1);

}  // namespace sluice::train
