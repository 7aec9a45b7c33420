// choose_run: which of the plans that a search found to run next, and which of those that ran to take. Simple is what
// has fewer stages a device, then recomputes nothing, then is gpipe or 1f1b, then has fewer devices, then fewer chunks.
// Pure. Not here: running them (train/study/measured_plan.h). Times in seconds.
#pragma once

#include <span>
#include <vector>

#include "tune/plan_search.h"
#include "tune/refit.h"

namespace sluice::tune {

struct PlanRun {
  Candidate candidate;
  bool ran = true;    // false: it has no memory, say
  double step_s = 0;  // measured
  double error = 0;   // of step_s, the standard error, relative
};

[[nodiscard]] Refit refit_of(std::span<const PlanRun> runs);

// Of those that were not run the one with the shortest step by predictions corrected by what ran; null: all were. After
// the first one, a simpler one than those that ran comes before it, if by these predictions no measurement would tell
// its step from the shortest: the simplest such.
[[nodiscard]] const Candidate* next_to_run(std::span<const Candidate> candidates, std::span<const PlanRun> runs);

// Puts the simplest of `plain` that by prediction no measurement would tell from the best one among the best, where
// none as simple is there; the last one of kMostCandidates gives way. Both: best first. Requires: there is a best one.
void add_simplest(std::vector<Candidate>& best, std::span<const Candidate> plain);

// The simplest of those that no measurement tells from the fastest: within two standard errors of the difference.
// Null where nothing ran.
[[nodiscard]] const PlanRun* simplest_of_fastest(std::span<const PlanRun> runs);

}  // namespace sluice::tune
