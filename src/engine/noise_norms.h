// noise_norms: the squared norms of a training step that the gradient noise scale is estimated from
// (tune/noise_scale.h): of the step's mean gradient, and of means over fewer of its samples. Those are the gradients of
// the replicas, which the sync squares before it adds them up (comm::ReplicaNorms); where there is one replica in all,
// what each stage has added up when its first micro-batches are done (pipeline/schedule/first_gradient.h).
// Of trained parameters only, as they are before clipping. A tied parameter counts once for each of its copies: norms
// are taken before its gradients are added up, or its copies' products would have to cross devices.
// Weights: the loss is a mean over targets (samples, or tokens), so a part weighs by its targets; a sample, of texts
// one text, is what is independent. Exact where every sample has as many targets. Not here: the estimate, its mean over
// steps. Threads: take() from each stage's own thread, the rest from one.
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

namespace sluice::engine {

// What a stage's first micro-batches have added up in a pass of one replica.
class FirstNorms {
 public:
  // Null where a trained stage has no such gradient, as with one micro-batch.
  static std::shared_ptr<FirstNorms> of(const pipeline::Executor& executor, const pipeline::PassRequest& request);

  void take(const pipeline::Stage& stage, const pipeline::Action& action);

  struct Part {
    comm::ReplicaShare share;
    double squares = 0;
  };
  // [stage]; nothing where none is trained, or the pass did not come so far.
  [[nodiscard]] std::vector<std::optional<Part>> parts() const;
  // Of the device that worked longest on them; on a GPU without what is only queued.
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

// What the sync and the pass know when the gradients are summed, before those of tied copies are added; neither knows
// anything where norms were not asked for.
struct SummedStep {
  const comm::StepOutcome& outcome;
  const FirstNorms* first;    // null: there are several replicas, or no first gradient
  double gradient_scale = 1;  // StepStart
  double divisor = 1;         // of replica 0's gradients, to be the mean
};
// Nothing where no two batches can be compared: fewer than two replicas have samples, and there is no first gradient;
// or where the gradients are not ours to update with.
[[nodiscard]] std::optional<GradientNorms> noise_norms(pipeline::Executor& executor, const SummedStep& step);

// Why steps of this plan give no norms to compare; empty where they do.
[[nodiscard]] std::string why_no_noise_norms(const Plan& plan, int processes);

}  // namespace sluice::engine
