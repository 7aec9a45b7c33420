// plan_settings: what the configuration settles of a plan and what it leaves open, and what a profile says that a step
// of it costs besides its layers; for whoever makes plans: a run (choose_plan.h), or a prediction by a profile
// (what_if.h). Not here: deciding what is open (tune/make_plan.h). Pure. Errors: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/config.h"
#include "core/plan.h"
#include "profiler/layer_profile.h"
#include "tune/make_plan.h"

namespace sluice::train {

// What is not in the configuration.
struct PlanFacts {
  Plan plan;                       // replicas, chunks, batch, schedule, order and virtual stages; decided beforehand
  int replicas = 1;                // over all processes
  int layers = 1;                  // of the model
  std::uint64_t memory_limit = 0;  // bytes of a place that a plan may be made for; 0: none
  bool shares_memory = true;       // tune::device_bytes()
};

[[nodiscard]] tune::PlanRequest plan_request(const config::Config& config, PlanFacts facts);

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

// Of the bytes of its gradients, those that a process sends (replicas.bucket_type).
[[nodiscard]] double sent_share(const config::Config& config, int processes);

// Requires: a choice that is not open.
[[nodiscard]] bool recomputes(const config::RecomputeChoice& choice, int stage);
// The configuration's words for the stages that recompute.
[[nodiscard]] config::RecomputeChoice recompute_choice(const Plan& plan);

}  // namespace sluice::train
