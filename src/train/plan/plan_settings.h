// plan_settings: the decided and the open parts of a plan, for runs and predictions (what_if.h). Pure. Errors: none.
#pragma once

#include <cstdint>

#include "config/config.h"
#include "core/plan.h"
#include "tune/make_plan.h"

namespace sluice::train {

struct PlanFacts {
  Plan plan;         // replicas, chunks, batch, schedule, schedule_text and virtual stages
  int replicas = 1;  // over all processes
  int layers = 1;
  std::uint64_t memory_limit = 0;  // per slot, in bytes; 0: none
  bool shares_memory = true;       // as in tune::device_bytes()
};

[[nodiscard]] tune::PlanRequest plan_request(const config::Config& config, PlanFacts facts);

[[nodiscard]] bool recomputes(const config::RecomputeChoice& choice, int stage);
[[nodiscard]] config::RecomputeChoice recompute_choice(const Plan& plan);

// True if a plan made with settings `was` suits `config`: stages, replicas and schedule are equal; partition, chunks
// and recomputation are as configured, or open in both. schedule_text: of pipeline.order.
[[nodiscard]] bool plan_can_be_kept(const config::Config& config, const config::Config& was, int processes,
                                    const Plan& saved, const std::string& schedule_text = {});

}  // namespace sluice::train
