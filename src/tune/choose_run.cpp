#include "tune/choose_run.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace sluice::tune {
namespace {

constexpr double kErrors = 2;  // standard errors of a difference within which two steps count as equal
constexpr double kUsualError = 0.005;
constexpr double kMostSpread = 0.02;  // relative time worth giving up for a simpler plan

auto complexity(const Plan& plan) {
  const bool is_plain = plan.schedule == "gpipe" || plan.schedule == "1f1b";
  return std::tuple(plan.virtual_stages, plan.recompute_any(), !is_plain, plan.devices(), plan.chunks);
}

// Relative difference below which measurement cannot distinguish two steps, from the errors of the runs.
double spread_of(std::span<const PlanRun> runs) {
  double sum = 0;
  int count = 0;
  for (const PlanRun& run : runs)
    if (run.ran) sum += run.error, ++count;
  const double error = count > 0 ? sum / count : kUsualError;
  return std::min(kMostSpread, kErrors * std::hypot(error, error));
}

const Candidate* simplest_of(std::span<const Candidate> candidates, const Refit& refit, double most) {
  const Candidate* simplest = nullptr;
  for (const Candidate& candidate : candidates) {
    if (refit.seconds(candidate) > most) continue;
    if (simplest == nullptr || complexity(candidate.plan) < complexity(simplest->plan)) simplest = &candidate;
  }
  return simplest;
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
  const auto seconds = [&](const Candidate& candidate) { return refit.seconds(candidate); };
  const auto has_run = [&](const Candidate& candidate) {
    return std::ranges::any_of(runs, [&](const PlanRun& run) { return run.candidate.plan == candidate.plan; });
  };
  const Candidate* next = nullptr;
  for (const Candidate& candidate : candidates)
    if (!has_run(candidate) && (next == nullptr || seconds(candidate) < seconds(*next))) next = &candidate;
  if (next == nullptr || runs.empty()) return next;
  const double shortest = seconds(*std::ranges::min_element(candidates, {}, seconds));
  const Candidate* const simplest = simplest_of(candidates, refit, (1 + spread_of(runs)) * shortest);
  if (simplest == nullptr || has_run(*simplest)) return next;
  return simplest;
}

void add_simplest(std::vector<Candidate>& best, std::span<const Candidate> plain) {
  const double most = (1 + spread_of({})) * best.front().step.seconds;
  const Candidate* const simplest = simplest_of(plain, {}, most);
  if (simplest == nullptr) return;
  const auto is_as_simple = [&](const Candidate& candidate) {
    return candidate.step.seconds <= most && complexity(candidate.plan) <= complexity(simplest->plan);
  };
  if (std::ranges::any_of(best, is_as_simple)) return;
  if (best.size() >= kMostCandidates) best.pop_back();
  const auto position = std::ranges::upper_bound(best, simplest->step.seconds, {},
                                                 [](const Candidate& candidate) { return candidate.step.seconds; });
  best.insert(position, *simplest);
}

const PlanRun* simplest_of_fastest(std::span<const PlanRun> runs) {
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
