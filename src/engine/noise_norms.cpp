#include "engine/noise_norms.h"

#include <algorithm>
#include <map>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/concat.h"
#include "ddp/squares.h"
#include "pipeline/schedule/plan_schedule.h"

namespace sluice::engine {

using pipeline::FirstGradient;
using pipeline::MicroBatch;
using pipeline::Stage;

std::shared_ptr<FirstNorms> FirstNorms::of(const pipeline::Executor& executor, const pipeline::PassRequest& request,
                                           const task::Task& task) {
  const std::vector<MicroBatch>& micro_batches = request.micro_batches.front();
  std::vector<std::int64_t> samples;
  for (const MicroBatch& micro_batch : micro_batches) samples.push_back(micro_batch.samples());
  auto norms = std::make_shared<FirstNorms>();
  for (int s = 0; s < executor.stages(); ++s) {
    OfStage& of_stage = norms->stages_.emplace_back();
    of_stage.device = executor.owners()[s];
    if (!executor.stage(ReplicaId{0}, StageId{s}).is_trained()) continue;
    of_stage.first = pipeline::first_gradient(request.schedule.devices[of_stage.device], StageId{s}, samples);
    if (!of_stage.first) return nullptr;
    for (const MicroBatchId id : of_stage.first->micro_batches) {
      of_stage.share.samples += samples[index(id)];
      of_stage.share.targets += task.count_targets(micro_batches[index(id)].targets);
    }
  }
  return norms;
}

void FirstNorms::take(const Stage& stage, const pipeline::Action& action) {
  OfStage& own = stages_[index(action.stage)];
  if (!own.first || own.first->op != action.op || own.first->last != action.micro_batch) return;
  const at::NoGradGuard no_grad;
  const Nanoseconds begin = now_ns();
  own.squares = ddp::squares_of(stage.parameters().gradients());
  own.duration = now_ns() - begin;
}

std::vector<std::optional<FirstNorms::Part>> FirstNorms::parts() const {
  std::vector<std::optional<Part>> parts;
  for (const OfStage& own : stages_) {
    parts.emplace_back();
    if (own.squares.defined()) parts.back() = Part{own.share, own.squares.item<double>()};
  }
  return parts;
}

Nanoseconds FirstNorms::duration() const {
  std::map<int, Nanoseconds> of_device;
  Nanoseconds most = 0;
  for (const OfStage& own : stages_) most = std::max(most, of_device[own.device] += own.duration);
  return most;
}

namespace {

// [stage]: of replica 0's unscaled gradients. Replicas in the same memory share the work.
std::vector<double> squares_by_stage(pipeline::Executor& executor) {
  const int replicas = executor.replicas(), stages = executor.stages();
  std::vector<at::Tensor> gradients;
  std::vector<int> sharers;  // [stage]: number of replicas that share the work
  for (int s = 0; s < stages; ++s) {
    const auto& first = executor.stage(ReplicaId{0}, StageId{s}).parameters();
    const auto& last = executor.stage(ReplicaId{replicas - 1}, StageId{s}).parameters();
    gradients.push_back(first.gradients());
    sharers.push_back(last.values().is_same(first.values()) ? replicas : 1);
  }
  const auto parts = std::make_shared<std::vector<double>>(static_cast<std::size_t>(replicas) * stages);
  executor.for_each_stage(Phase::kOptimizer, [=](ReplicaId replica, StageId stage, Stage&) {
    const int r = index(replica), s = index(stage), count = sharers[s];
    if (r >= count) return;
    const at::NoGradGuard no_grad;
    const std::int64_t begin = gradients[s].numel() * r / count, end = gradients[s].numel() * (r + 1) / count;
    (*parts)[r * stages + s] = ddp::squares_of(gradients[s].narrow(0, begin, end - begin)).item<double>();
  });
  std::vector<double> squares(stages);
  for (std::size_t i = 0; i < parts->size(); ++i) squares[i % stages] += (*parts)[i];
  return squares;
}

double squared(double number) { return number * number; }

// Replicas have the weights v = t / T of tune/noise_scale.h.
GradientPair pair_of_replicas(const comm::ReplicaNorms& norms, double targets, double scale) {
  return {.small_samples = targets / norms.per_small,
          .small_squares = norms.squares / squared(scale) / targets,
          .big_samples = squared(targets) / norms.per_big};
}

std::optional<GradientPair> pair_of_first(const FirstNorms::Part& part, const comm::Contribution& total, double scale) {
  if (part.share.targets == 0) return std::nullopt;
  return GradientPair{.small_samples = static_cast<double>(part.share.samples),
                      .small_squares = part.squares / squared(scale * static_cast<double>(part.share.targets)),
                      .big_samples = static_cast<double>(total.samples)};
}

}  // namespace

std::optional<GradientNorms> noise_norms(pipeline::Executor& executor, const SummedStep& step) {
  const comm::Contribution& total = step.outcome.total;
  const bool has_replicas = step.outcome.norms.replicas >= 2;
  if (step.outcome.update != comm::Update::kLocal || (!has_replicas && step.first == nullptr)) return std::nullopt;
  const Nanoseconds begin = now_ns();
  const std::vector<double> squares = squares_by_stage(executor);
  GradientNorms norms;
  if (has_replicas) {
    GradientPair& all = norms.parts.emplace_back(
        pair_of_replicas(step.outcome.norms, static_cast<double>(total.targets), step.gradient_scale));
    for (const double of_stage : squares) all.big_squares += of_stage / squared(step.divisor);
  } else {
    const auto parts = step.first->parts();
    for (std::size_t s = 0; s < parts.size(); ++s) {
      if (!parts[s]) continue;
      std::optional<GradientPair> pair = pair_of_first(*parts[s], total, step.gradient_scale);
      if (!pair) return std::nullopt;
      pair->big_squares = squares[s] / squared(step.divisor);
      norms.parts.push_back(*pair);
    }
  }
  norms.duration = now_ns() - begin + (has_replicas ? step.outcome.norms_time : step.first->duration());
  return norms;
}

std::string why_no_noise_norms(const Plan& plan, int processes) {
  if (plan.replicas * processes > 1) return {};
  if (plan.chunks == 1)
    return "one replica with one micro-batch has no smaller batch to compare with; set pipeline.chunks to 2 or more";
  const pipeline::Schedule schedule = pipeline::make_train_schedule(plan, plan.chunks);
  const std::vector<std::int64_t> samples(plan.chunks, 1);
  for (const auto& actions : schedule.devices) {
    for (const pipeline::Action& action : actions) {
      if (action.op != pipeline::Op::kReduceGradient || pipeline::first_gradient(actions, action.stage, samples))
        continue;
      return concat("the schedule ", plan.schedule, " with ", plan.chunks,
                    " micro-batches defers the weight gradients of stage ", index(action.stage),
                    " to the end, so its gradient never covers fewer samples than the step; "
                    "set pipeline.schedule = \"1f1b\", or use more replicas");
    }
  }
  return {};
}

}  // namespace sluice::engine
