// rank_times: where the time of a run went in each of its processes, told at the end: the records of the run are
// rank 0's, and the slowest process may be another. Threads: one. Errors: those of the communicator.
#pragma once

#include <nlohmann/json.hpp>

#include "comm/communicator.h"
#include "report/slot_totals.h"
#include "train/trace/step_observer.h"

namespace sluice::train {

class RankTimes final : public StepObserver {
 public:
  void after_step(const SeenStep& step) override { report::add_step(totals_, step.breakdown); }

  // The fields of `ranks` (docs/files.md), in rank 0; all processes call it together.
  [[nodiscard]] nlohmann::ordered_json of_all(const comm::Communicator& all) const;

 private:
  report::SlotTotals totals_;
};

}  // namespace sluice::train
