// stage_times: mean times of this process's stages, and the step time that they imply. The means are placed into the
// schedule; the first micro-batch is separate, because it transforms weights for all. All-reduces, update and exposed
// loading are added. The difference to the measured step time has other causes: uneven micro-batches, thread wake-ups,
// noise. Threads: one. Units: seconds.
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

  // slots: of the same steps. Returns nothing if no step was recorded completely, or if the plan has frozen layers,
  // whose work belongs to no stage.
  [[nodiscard]] std::optional<double> step_s(const Plan& plan, const SlotTotals& slots) const;

 private:
  using OfMicroBatches = std::map<MicroBatchId, double>;  // the schedule determines the first one and whole backwards
  struct Sums {
    OfMicroBatches forward, backward;
    double weight = 0;
  };
  [[nodiscard]] Sums& sums_of(StageId stage);
  // Returns the sum for an action; null if the span belongs to no stage.
  [[nodiscard]] double* sum_of(const Span& span);
  [[nodiscard]] pipeline::StepCost mean_cost(const pipeline::Schedule& schedule, StageId stage) const;
  void add_slot(const std::vector<Span>& spans);

  std::vector<Sums> stages_;
  std::int64_t replica_steps_ = 0;  // steps times local replicas
};

}  // namespace sluice::report
