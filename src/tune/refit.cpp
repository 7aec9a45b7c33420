#include "tune/refit.h"

#include <cmath>

namespace sluice::tune {

void Refit::add(const Candidate& candidate, double measured) {
  runs_.push_back({candidate.plan.devices(), candidate.plan.replicas, std::log(measured / candidate.step.seconds)});
}

double Refit::factor(const Plan& plan) const {
  double alike = 0, all = 0;
  int count_alike = 0;
  for (const Run& run : runs_) {
    all += run.log_ratio;
    if (run.devices != plan.devices() || run.replicas != plan.replicas) continue;
    alike += run.log_ratio;
    ++count_alike;
  }
  if (count_alike > 0) return std::exp(alike / count_alike);
  return runs_.empty() ? 1 : std::exp(all / static_cast<double>(runs_.size()));
}

}  // namespace sluice::tune
