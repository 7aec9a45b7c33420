// configured_plan: the plan of the configuration as it stands, which `sluice tune` compares its own with: what it is
// predicted to take by the profiles, or why nothing is predicted of it. Not here: running it (verify_plans.h).
// Pure, but for what make_plan() logs. Errors: none.
#pragma once

#include <optional>
#include <string>

#include "config/config.h"
#include "profiler/profiles.h"
#include "train/study/measured_plan.h"
#include "tune/plan_search.h"

namespace sluice::train {

struct ConfiguredPlan {
  std::optional<tune::Candidate> predicted;
  std::string not_predicted;              // why; empty: it is
  std::optional<MeasuredSteps> measured;  // nothing: it was not run
  std::string not_run;                    // why, where it might have been

  [[nodiscard]] bool ran() const { return measured && measured->failure.empty(); }
};

// An open cut or recomputation is decided by the profile.
[[nodiscard]] ConfiguredPlan predict_configured(const config::Config& config, const profiler::Profiles& profiles);

// Equal, where an empty `recompute` and one without any true entry count as the same.
[[nodiscard]] bool is_same_plan(Plan one, Plan other);

}  // namespace sluice::train
