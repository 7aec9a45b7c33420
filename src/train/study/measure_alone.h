// measure_alone: rank 0's own part of `sluice profile`: layers, contention between devices, links between stages,
// update, loading, parameter server. Threads: one, besides the devices'. Errors: those of the measured parts.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <string>

#include "core/clock.h"
#include "profiler/layer_profile.h"
#include "train/setup/setup.h"

namespace sluice::train {

// Time left of ProfileOptions::budget_s; unlimited without a budget.
class TimeLeft {
 public:
  explicit TimeLeft(double budget_s) : budget_s_(budget_s), begin_(now_ns()) {}

  [[nodiscard]] bool is_limited() const { return budget_s_ > 0; }
  [[nodiscard]] double seconds() const {
    if (!is_limited()) return std::numeric_limits<double>::infinity();
    return std::max(0.0, budget_s_ - to_s(now_ns() - begin_));
  }

 private:
  double budget_s_;
  Nanoseconds begin_;
};

[[nodiscard]] profiler::LayerProfile measure_alone(const Setup& setup, const std::string& version, const TimeLeft& left,
                                                   const std::function<void(const profiler::LayerProfile&)>& keep);

}  // namespace sluice::train
