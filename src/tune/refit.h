// refit: predictions corrected by plans that ran. Where a plan took longer than predicted, others like it are taken to
// do so by the same factor: those with as many devices and replicas, where any of these ran; else all. What the factor
// of several runs is, is their geometric mean, so that too long and too short weigh alike. Pure. Times in seconds.
#pragma once

#include <vector>

#include "tune/plan_search.h"

namespace sluice::tune {

class Refit {
 public:
  // measured: above 0.
  void add(const Candidate& candidate, double measured);

  // Measured over predicted; 1 where nothing ran.
  [[nodiscard]] double factor(const Plan& plan) const;
  [[nodiscard]] double seconds(const Candidate& candidate) const {
    return candidate.step.seconds * factor(candidate.plan);
  }

 private:
  struct Run {
    int devices = 1, replicas = 1;
    double log_ratio = 0;
  };
  std::vector<Run> runs_;
};

}  // namespace sluice::tune
