// plan_settings: what the configuration settles of a plan and what it leaves open, for whoever makes plans: a run
// (choose_plan.h), or a prediction by a profile (what_if.h). Not here: deciding what is open (tune/make_plan.h); what a
// step costs besides its layers (profile_overheads.h). Pure. Errors: none.
#pragma once

#include <cstdint>

#include "config/config.h"
#include "core/plan.h"
#include "tune/make_plan.h"

namespace sluice::train {

// What is not in the configuration.
struct PlanFacts {
  Plan plan;                       // replicas, chunks, batch, schedule, its text and virtual stages; decided beforehand
  int replicas = 1;                // over all processes
  int layers = 1;                  // of the model
  std::uint64_t memory_limit = 0;  // bytes of a slot that a plan may be made for; 0: none
  bool shares_memory = true;       // tune::device_bytes()
};

[[nodiscard]] tune::PlanRequest plan_request(const config::Config& config, PlanFacts facts);

// Requires: a choice that is not open.
[[nodiscard]] bool recomputes(const config::RecomputeChoice& choice, int stage);
// The configuration's words for the stages that recompute.
[[nodiscard]] config::RecomputeChoice recompute_choice(const Plan& plan);

// A plan that was made under the settings `was`: where stages, replicas and schedule are the same, and cut, chunks and
// recomputation are what the settings of now ask for, or open in both. schedule_text: of pipeline.order.
[[nodiscard]] bool plan_can_be_kept(const config::Config& config, const config::Config& was, int processes,
                                    const Plan& saved, const std::string& schedule_text = {});

}  // namespace sluice::train
