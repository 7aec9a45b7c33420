// choose_run: decides which of the found plans to run next and which of the measured plans to take. Of two plans the
// simpler one has fewer stages per device; then no recomputation; then gpipe or 1f1b; then fewer devices; then fewer
// chunks. Pure. Times in seconds.
#pragma once

#include <span>
#include <vector>

#include "tune/plan_search.h"
#include "tune/refit.h"

namespace sluice::tune {

struct PlanRun {
  Candidate candidate;
  bool ran = true;  // false if it failed, for example for lack of memory
  double step_s = 0;
  double error = 0;  // relative standard error of step_s
};

[[nodiscard]] Refit refit_of(std::span<const PlanRun> runs);

// The candidate to run next, or null if all have run: the shortest corrected prediction. After the first run, the
// simplest candidate that no measurement could distinguish from it comes first, if it is simpler than all that ran.
[[nodiscard]] const Candidate* next_to_run(std::span<const Candidate> candidates, std::span<const PlanRun> runs);

// Adds the simplest candidate of `plain` that no measurement could distinguish from the best, unless `best` has one as
// simple. It replaces the last entry of a full `best` (kMostCandidates). Both: best first; `best` is not empty.
void add_simplest(std::vector<Candidate>& best, std::span<const Candidate> plain);

// The simplest run within two standard errors of the fastest; null if nothing ran.
[[nodiscard]] const PlanRun* simplest_of_fastest(std::span<const PlanRun> runs);

}  // namespace sluice::tune
