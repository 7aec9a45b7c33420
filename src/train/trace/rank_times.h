// rank_times: reports how each rank spent the time of a run. Threads: one. Errors: those of the communicator.
#pragma once

#include <nlohmann/json.hpp>

#include "comm/communicator.h"
#include "report/slot_totals.h"
#include "train/trace/step_observer.h"

namespace sluice::train {

class RankTimes final : public StepObserver {
 public:
  void after_step(const SeenStep& step) override { report::add_step(totals_, step.breakdown); }

  // Returns the fields of `ranks` (docs/reference/files.md) in rank 0. All processes call it together.
  [[nodiscard]] nlohmann::ordered_json of_all(const comm::Communicator& all) const;

 private:
  report::SlotTotals totals_;
};

}  // namespace sluice::train
