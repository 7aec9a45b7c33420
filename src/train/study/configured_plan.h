// configured_plan: the prediction of the configured plan, to compare with `sluice tune`'s own plans. Errors: none.
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
  std::string not_predicted;              // the reason; empty if predicted
  std::optional<MeasuredSteps> measured;  // nullopt if it was not run
  std::string not_run;                    // the reason, if it could have run

  [[nodiscard]] bool ran() const { return measured && measured->failure.empty(); }
};

// The profile decides an open partition or recomputation.
[[nodiscard]] ConfiguredPlan predict_configured(const config::Config& config, const profiler::Profiles& profiles);

// An empty `recompute` equals one without true entries.
[[nodiscard]] bool is_same_plan(Plan one, Plan other);

}  // namespace sluice::train
