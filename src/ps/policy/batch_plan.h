// batch_plan: dual batch sizes (Lu et al., COMPSAC 2022; arXiv 2509.26092). Some workers take a smaller batch and fewer
// samples of an epoch, so that all workers finish together. A step on a batch of B takes a B + b seconds, so a share of
// d samples takes (a + b / B) d. With n workers, n_S of them small, base batch B_L, D samples and extra time k:
//   d_L = floor(k D / n),  d_S = floor((D - d_L n_L) / n_S),  B_S = floor(b / (k (a + b / B_L) D / n / d_S - a))
// The server weighs a small worker's update by d_S / d_L. Rounding down is exact (rational.h), as in the authors' code.
// Pure. Times are in seconds. Errors: ConfigError if no batch size works, or the batch is too small for learning.
#pragma once

#include <cstdint>
#include <optional>

#include "ps/policy/rational.h"

namespace sluice::ps {

// Below this size the noise of a batch costs more than the plan gains.
inline constexpr std::int64_t kLeastBatch = 40;

struct BatchPlanRequest {
  int workers = 1;
  int small_workers = 0;
  std::int64_t base_batch = 1;
  std::int64_t samples = 1;  // samples of an epoch
  Rational extra_time = 1;   // at least 1: allowed duration of an epoch, relative to base batches only
  Rational a = 0;            // seconds per sample
  Rational b = 0;            // seconds per step
  // Costs of the small workers if their machines differ; nothing: same as the others. B_S then uses these costs.
  std::optional<Rational> small_a = {};
  std::optional<Rational> small_b = {};
  bool allows_tiny = false;
};

struct BatchPlan {
  std::int64_t small_batch = 0;    // 0: no worker is small; small_samples is then 0, too
  std::int64_t large_samples = 0;  // per epoch and large worker; 0: no worker is large
  std::int64_t small_samples = 0;
  double factor = 1;  // weight of a small worker's update
  // Set for a batch below kLeastBatch: factor for a small worker's learning rate, in proportion to the batch.
  std::optional<double> small_lr_factor;
  double base_seconds = 0;   // an epoch with base batches only
  double large_seconds = 0;  // an epoch of a large worker; 0: no worker is large
  double small_seconds = 0;
};

[[nodiscard]] BatchPlan plan_batches(const BatchPlanRequest& request);

}  // namespace sluice::ps
