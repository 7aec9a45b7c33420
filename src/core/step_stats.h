// step_stats: results of a training step and of an evaluation. Times are in core/recorder.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/clock.h"
#include "core/flops.h"
#include "core/scores.h"

namespace sluice {

// Squared norms of the mean gradients over a small and a big set of samples of one step, for some parameters.
struct GradientPair {
  double small_samples = 0;
  double small_squares = 0;
  double big_samples = 0;
  double big_squares = 0;
};
// Input of an estimate of the gradient noise scale (tune/noise_scale.h).
struct GradientNorms {
  std::vector<GradientPair> parts;  // disjoint; together they cover all trained parameters
  Nanoseconds duration = 0;         // time to compute the norms; on a GPU without work that is only queued
};

// Equal in every process, except `flops` in a process without samples, and the last bits of norms.
struct StepStats {
  double loss = 0;  // mean over the counted targets (samples or tokens)
  std::int64_t samples = 0;
  std::int64_t targets = 0;
  std::optional<ScoreSums> scores;  // of the predictions before the update, if requested
  bool stop = false;
  bool regroup = false;
  bool has_events = false;  // a process has events for rank 0
  bool skipped = false;     // the gradients were dropped and the weights not updated
  FlopCount flops{};
  std::optional<double> gradient_norm;      // norm before clipping, if it was computed
  std::optional<GradientNorms> norms = {};  // set if requested and if there are two batches to compare
};

}  // namespace sluice
