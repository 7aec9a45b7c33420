// stage_times: what the stages of this process took in some steps, and how long a step would be by that alone: each
// stage's mean times put in the order of the schedule, its first micro-batch of a step apart from the others (it
// transforms weights for all), then the sums, the update and the load that nothing hid. What remains between that and
// the steps themselves, no cost of a stage explains: uneven micro-batches, waking threads, noise. Not here: what stages
// were predicted to take (tune/predict.h), whose step time goes (profiler/breakdown.h). Threads: one. Times in seconds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/plan.h"
#include "core/recorder.h"
#include "pipeline/schedule/action.h"
#include "pipeline/schedule/simulate.h"
#include "report/slot_totals.h"

namespace sluice::report {

class StageTimes {
 public:
  void add(const StepSpans& spans);

  // slots: of the same steps. Nothing where no step was recorded in full, or the plan has frozen layers, whose work is
  // in no stage.
  [[nodiscard]] std::optional<double> step_s(const Plan& plan, const SlotTotals& slots) const;

 private:
  using OfMicroBatches = std::map<MicroBatchId, double>;  // the schedule knows which is first, and which backward whole
  struct Sums {
    OfMicroBatches forward, backward;
    double weight = 0;
  };
  [[nodiscard]] Sums& sums_of(StageId stage);
  // Where an action's time goes; null: it is none of a stage.
  [[nodiscard]] double* sum_of(const Span& span);
  // Of a micro-batch.
  [[nodiscard]] pipeline::StepCost mean_cost(const pipeline::Schedule& schedule, StageId stage) const;
  void add_slot(const std::vector<Span>& spans);

  std::vector<Sums> stages_;
  std::int64_t replica_steps_ = 0;  // a step of each local replica counts
};

}  // namespace sluice::report
