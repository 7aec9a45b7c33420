// profile_overheads: what a profile says that a step of a plan costs besides its layers (links, sums, update, loading),
// under a configuration: for a run (choose_plan.h), and for a prediction without one (what_if.h). Not here: what the
// configuration settles of a plan (plan_settings.h). Pure. Errors: none.
#pragma once

#include <optional>
#include <string>

#include "config/config.h"
#include "core/plan.h"
#include "profiler/layer_profile.h"
#include "tune/predict.h"

namespace sluice::train {

// What the links, the optimizer and the devices of a profile cost a step of a plan with so many local replicas, without
// the borders between its stages and without loading.
[[nodiscard]] tune::StepOverheads step_overheads(const config::Config& config, const profiler::LayerProfile& profile,
                                                 int local_replicas, int processes, bool shares_memory);

[[nodiscard]] bool is_of_cpu(const profiler::LayerProfile& profile);

// Of all that decides what it costs to make a sample: [data], but not where it lies and who reads it.
[[nodiscard]] std::string hash_of_loading(const config::Config& config);
[[nodiscard]] bool loads_as_measured(const config::Config& config, const profiler::LayerProfile& profile);

// What loading costs a step of this plan, where samples are made as the profile's were. Nothing where it does not know.
[[nodiscard]] std::optional<tune::Loading> loading_of(const config::Config& config,
                                                      const profiler::LayerProfile& profile, const Plan& plan,
                                                      int processes);

// The share of its gradients' bytes that a process sends (replicas.bucket_type).
[[nodiscard]] double sent_share(const config::Config& config, int processes);

}  // namespace sluice::train
