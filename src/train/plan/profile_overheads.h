// profile_overheads: a step's costs besides its layers (links, sums, update, loading), from a profile and a
// configuration. Pure. Errors: none.
#pragma once

#include <optional>
#include <string>

#include "config/config.h"
#include "core/plan.h"
#include "profiler/layer_profile.h"
#include "tune/predict.h"

namespace sluice::train {

// Costs of links, optimizer and devices for `local_replicas` replicas, without borders between stages and loading.
[[nodiscard]] tune::StepOverheads step_overheads(const config::Config& config, const profiler::LayerProfile& profile,
                                                 int local_replicas, int processes, bool shares_memory);

[[nodiscard]] bool is_of_cpu(const profiler::LayerProfile& profile);

[[nodiscard]] std::string hash_of_loading(const config::Config& config);
[[nodiscard]] bool loads_as_measured(const config::Config& config, const profiler::LayerProfile& profile);

// Loading cost per step of this plan; nullopt if the profile's samples were made differently or it has no such cost.
[[nodiscard]] std::optional<tune::Loading> loading_of(const config::Config& config,
                                                      const profiler::LayerProfile& profile, const Plan& plan,
                                                      int processes);

[[nodiscard]] double sent_share(const config::Config& config, int processes);

}  // namespace sluice::train
