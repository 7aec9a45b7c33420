// batch_plan: dual batch sizes (Lu et al., COMPSAC 2022; arXiv 2509.26092): some workers take a smaller batch, and so
// many fewer samples of an epoch that all workers are done at the same time. A step on a batch of B takes a B + b
// seconds, so a share of d samples takes (a + b / B) d. With n workers, n_S of them small, base batch B_L, D samples
// and extra time k:
//   d_L = floor(k D / n),  d_S = floor((D - d_L n_L) / n_S),  B_S = floor(b / (k (a + b / B_L) D / n / d_S - a))
// and the server weighs a small worker's update by d_S / d_L. Rounded down exactly (rational.h), as their code does.
// Pure. Times in seconds. Errors: ConfigError where no batch size does it, or the batch is too small to learn with.
#pragma once

#include <cstdint>
#include <optional>

#include "ps/policy/rational.h"

namespace sluice::ps {

// Below it the noise of a batch costs more than the plan wins.
inline constexpr std::int64_t kLeastBatch = 40;

struct BatchPlanRequest {
  int workers = 1;
  int small_workers = 0;
  std::int64_t base_batch = 1;
  std::int64_t samples = 1;  // of an epoch
  Rational extra_time = 1;   // at least 1: an epoch may take so much longer than with base batches alone
  Rational a = 0;            // seconds a sample
  Rational b = 0;            // seconds a step
  // Of the small workers, where they are other machines; nothing: as the others. Then B_S is of theirs.
  std::optional<Rational> small_a = {};
  std::optional<Rational> small_b = {};
  bool allows_tiny = false;  // batches below kLeastBatch
};

struct BatchPlan {
  std::int64_t small_batch = 0;    // 0: no worker is small; likewise small_samples
  std::int64_t large_samples = 0;  // of an epoch, of each large worker; 0: there is none
  std::int64_t small_samples = 0;
  double factor = 1;  // weight of a small worker's update
  // Of a batch below kLeastBatch: by how much a small worker's learning rate is to be lower, in proportion to the
  // batch.
  std::optional<double> small_lr_factor;
  double base_seconds = 0;   // an epoch with base batches alone
  double large_seconds = 0;  // an epoch of a large worker; 0: there is none
  double small_seconds = 0;
};

[[nodiscard]] BatchPlan plan_batches(const BatchPlanRequest& request);

}  // namespace sluice::ps
