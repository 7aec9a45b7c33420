// step_record: what a run tells of a step and of an evaluation, and what steps in a row add up to. Values.
// Not here: who takes them (run_sink.h), their words (console_text.h), their fields (step_fields.h).
#pragma once

#include <cstdint>
#include <optional>

#include "core/step_stats.h"
#include "profiler/breakdown.h"
#include "tune/noise_scale.h"

namespace sluice::report {

// What a step says of the gradient noise scale.
struct NoiseRecord {
  tune::GradientEstimate of_step;
  std::optional<tune::NoiseScale> mean;  // of all steps so far; nothing while there are too few
  Nanoseconds duration = 0;              // that taking the norms took
};

// What a run still does besides its steps, the evaluation that follows this one included.
struct RemainingWork {
  std::int64_t evaluations = 0;
  std::int64_t checkpoints = 0;
  double checkpoint_interval_s = 0;  // a further checkpoint each time so many seconds have passed; 0: none
};

// One optimizer step as it is reported.
struct StepRecord {
  std::int64_t step = 0;   // steps done, this one included
  std::int64_t epoch = 0;  // from 0
  std::int64_t batch = 0;  // from 0, in the epoch
  std::int64_t batches = 0;
  StepStats stats;
  double lr = 0;
  profiler::StepBreakdown breakdown;
  bool evaluation_follows = false;
  std::optional<NoiseRecord> noise = {};
  RemainingWork remaining = {};
};

// Until the end of the run.
struct TimeLeft {
  double seconds = 0;
  bool lacks_evaluations = false;  // some are to come, and this start has made none to tell their time by
};

struct EvalRecord {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  EvalCounts counts;
  std::optional<EvalCounts> averaged = {};  // with the average of the weights, where one is kept
  double seconds = 0;
};

// What steps in a row add up to: those since the last line, or those of an epoch.
struct StepSums {
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  std::int64_t first_batch = 0, last_batch = 0;  // from 0, in the epoch
  double loss_sum = 0;                           // over the targets, which weigh alike however many a step has
  std::int64_t targets = 0;
  EvalCounts correct;  // of the steps that counted them
  Nanoseconds duration = 0;
  std::optional<profiler::SlotBreakdown> times;  // mean over the slots; nothing where none was recorded

  void add(const StepRecord& record);
  [[nodiscard]] double loss() const { return loss_sum / static_cast<double>(targets); }
};

}  // namespace sluice::report
