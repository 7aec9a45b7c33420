#include "tune/choose_run.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace sluice::tune {
namespace {

auto complexity(const Plan& plan) {
  const bool is_plain = plan.schedule == "gpipe" || plan.schedule == "1f1b";
  return std::tuple(plan.virtual_stages, plan.recompute_any(), !is_plain, plan.devices(), plan.chunks);
}

}  // namespace

Refit refit_of(std::span<const PlanRun> runs) {
  Refit refit;
  for (const PlanRun& run : runs)
    if (run.ran) refit.add(run.candidate, run.step_s);
  return refit;
}

const Candidate* next_to_run(std::span<const Candidate> candidates, std::span<const PlanRun> runs) {
  const Refit refit = refit_of(runs);
  const Candidate* next = nullptr;
  for (const Candidate& candidate : candidates) {
    const auto is_this = [&](const PlanRun& run) { return run.candidate.plan == candidate.plan; };
    if (std::ranges::any_of(runs, is_this)) continue;
    if (next == nullptr || refit.seconds(candidate) < refit.seconds(*next)) next = &candidate;
  }
  return next;
}

const PlanRun* simplest_of_fastest(std::span<const PlanRun> runs) {
  constexpr double kErrors = 2;
  const PlanRun* fastest = nullptr;
  for (const PlanRun& run : runs)
    if (run.ran && (fastest == nullptr || run.step_s < fastest->step_s)) fastest = &run;
  const PlanRun* best = fastest;
  for (const PlanRun& run : runs) {
    if (!run.ran || run.step_s > (1 + kErrors * std::hypot(run.error, fastest->error)) * fastest->step_s) continue;
    if (complexity(run.candidate.plan) < complexity(best->candidate.plan)) best = &run;
  }
  return best;
}

}  // namespace sluice::tune
