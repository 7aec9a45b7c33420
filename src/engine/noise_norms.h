// noise_norms: the squared gradient norms of a training step for the gradient noise scale (tune/noise_scale.h): of the
// mean gradient, and of means over fewer samples. With several replicas, the latter are the replicas' gradients
// (comm::ReplicaNorms). With one, it is each stage's sum after its first micro-batches
// (pipeline/schedule/first_gradient.h).
// Norms are of trained parameters before clipping; each copy of a tied parameter counts. The loss is a mean over
// targets (samples, or tokens), so a part weighs by its targets. Exact if every sample has equally many targets.
// Threads: take() from each stage's own thread, the rest from one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/replica_sync.h"
#include "core/step_stats.h"
#include "engine/compose.h"
#include "pipeline/pass_request.h"
#include "pipeline/schedule/first_gradient.h"
#include "task/task.h"

namespace sluice::engine {

// The sums of a stage's first micro-batches in a pass of one replica.
class FirstNorms {
 public:
  // Null if a trained stage has no such gradient, for example with one micro-batch.
  static std::shared_ptr<FirstNorms> of(const pipeline::Executor& executor, const pipeline::PassRequest& request,
                                        const task::Task& task);

  void take(const pipeline::Stage& stage, const pipeline::Action& action);

  struct Part {
    comm::ReplicaShare share;
    double squares = 0;
  };
  // [stage]; nullopt if no parameter is trained, or the pass did not get so far.
  [[nodiscard]] std::vector<std::optional<Part>> parts() const;
  // Time of the device that worked longest; on a GPU without work that is only queued.
  [[nodiscard]] Nanoseconds duration() const;

 private:
  struct OfStage {
    std::optional<pipeline::FirstGradient> first;
    comm::ReplicaShare share;
    at::Tensor squares;
    Nanoseconds duration = 0;
    int device = 0;
  };
  std::vector<OfStage> stages_;
};

// Results of the sync and the pass when gradients are summed, before those of tied copies are added.
struct SummedStep {
  const comm::StepOutcome& outcome;
  const FirstNorms* first;    // null: several replicas, or no first gradient
  double gradient_scale = 1;  // as in StepStart
  double divisor = 1;         // turns replica 0's gradients into the mean
};
// Empty if norms were not requested, the update is not local, or no two batches can be compared.
[[nodiscard]] std::optional<GradientNorms> noise_norms(pipeline::Executor& executor, const SummedStep& step);

// Why steps of this plan give no norms to compare; empty if they do.
[[nodiscard]] std::string why_no_noise_norms(const Plan& plan, int processes);

}  // namespace sluice::engine
