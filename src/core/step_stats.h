// step_stats: what a training step and an evaluation come to, as values: counts of targets, loss, norms, operations.
// Not here: where the time went (core/recorder.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/clock.h"
#include "core/flops.h"

namespace sluice {

struct EvalCounts {
  double loss_sum = 0;
  std::int64_t top1 = 0;     // targets that have the largest logit
  std::int64_t top5 = 0;     // targets that are among the five largest; all of them when there are fewer classes
  std::int64_t targets = 0;  // that count: one a sample, or of texts the tokens

  EvalCounts& operator+=(const EvalCounts& other) {
    loss_sum += other.loss_sum;
    top1 += other.top1;
    top5 += other.top5;
    targets += other.targets;
    return *this;
  }
  [[nodiscard]] double loss() const { return loss_sum / static_cast<double>(targets); }
  [[nodiscard]] double top1_percent() const { return 100.0 * static_cast<double>(top1) / static_cast<double>(targets); }
  [[nodiscard]] double top5_percent() const { return 100.0 * static_cast<double>(top5) / static_cast<double>(targets); }
};

// Squared norms of two means of the gradients of samples of a step, in one part of the parameters.
struct GradientPair {
  double small_samples = 0;
  double small_squares = 0;
  double big_samples = 0;
  double big_squares = 0;
};
// What an estimate of the gradient noise scale is made of (tune/noise_scale.h).
struct GradientNorms {
  std::vector<GradientPair> parts;  // disjoint; all parameters that are trained
  Nanoseconds duration = 0;         // that taking them took; on a GPU without what is only queued
};

// The same in every process, but for flops where a process has no samples, and for norms, in their last bits.
struct StepStats {
  double loss = 0;  // mean over the targets that count: samples, or tokens
  std::int64_t samples = 0;
  std::int64_t targets = 0;                 // that the loss is the mean over
  std::optional<EvalCounts> correct;        // predictions before the update, and the loss, when asked for
  bool stop = false;                        // some process wants the run to stop
  bool skipped = false;                     // its gradients were dropped: no update
  FlopCount flops{};                        // of the step, over all processes
  std::optional<double> gradient_norm;      // before clipping, where there is any
  std::optional<GradientNorms> norms = {};  // where they were asked for, and there are two batches to compare
};

}  // namespace sluice
