// step_record: a step and an evaluation as reported, and sums over consecutive steps.
#pragma once

#include <cstdint>
#include <optional>

#include "core/step_stats.h"
#include "profiler/breakdown.h"
#include "tune/noise_scale.h"

namespace sluice::report {

struct NoiseRecord {
  tune::GradientEstimate of_step;
  std::optional<tune::NoiseScale> mean;  // over all steps so far; nothing if there are too few
  Nanoseconds duration = 0;
};

// Remaining work besides steps, including the evaluation after this step.
struct RemainingWork {
  std::int64_t evaluations = 0;
  std::int64_t checkpoints = 0;
  double checkpoint_interval_s = 0;  // interval of periodic checkpoints; 0: no periodic checkpoints
};

struct StepRecord {
  std::int64_t step = 0;   // completed steps, including this one
  std::int64_t epoch = 0;  // from 0
  std::int64_t batch = 0;
  std::int64_t batches = 0;
  StepStats stats;
  double lr = 0;
  profiler::StepBreakdown breakdown;
  bool evaluation_follows = false;
  std::optional<NoiseRecord> noise = {};
  RemainingWork remaining = {};
};

struct TimeLeft {
  double seconds = 0;
  bool lacks_evaluations = false;  // some evaluations remain whose time is unknown, because this start made none
};

struct EvalRecord {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  ScoreSums scores;
  std::optional<ScoreSums> averaged = {};  // with the averaged weights, if kept
  double seconds = 0;
};

struct StepSums {
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  std::int64_t first_batch = 0, last_batch = 0;
  double loss_sum = 0;  // over targets, each with the same weight
  std::int64_t targets = 0;
  ScoreSums scores;  // from the steps that counted them
  Nanoseconds duration = 0;
  std::optional<profiler::SlotBreakdown> times;  // mean over the slots; nothing if not recorded

  void add(const StepRecord& record);
  [[nodiscard]] double loss() const { return loss_sum / static_cast<double>(targets); }
  // `scores` with the loss over all steps.
  [[nodiscard]] ScoreSums all_scores() const;
};

}  // namespace sluice::report
