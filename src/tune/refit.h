// refit: corrects predictions by the geometric mean of measured / predicted of plans that ran: those with the same
// number of devices and replicas, or all if there are none. Pure. Times in seconds.
#pragma once

#include <vector>

#include "tune/plan_search.h"

namespace sluice::tune {

class Refit {
 public:
  // measured: above 0.
  void add(const Candidate& candidate, double measured);

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
