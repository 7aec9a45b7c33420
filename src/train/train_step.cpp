#include "train/train_step.h"

#include <cmath>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/error.h"
#include "pipeline/schedule/generators.h"

namespace sluice::train {
namespace {

double sum_of_losses(const pipeline::PassResult& result) {
  double sum = 0;
  for (const auto& of_replica : result) {
    for (const auto& micro_batch : of_replica) {
      if (micro_batch.loss.defined()) sum += micro_batch.loss.item<double>();
    }
  }
  return sum;
}

at::Tensor logits_in_order(const pipeline::PassResult& result) {
  std::vector<at::Tensor> parts;
  for (const auto& of_replica : result) {
    for (const auto& micro_batch : of_replica) {
      if (micro_batch.logits.defined()) parts.push_back(micro_batch.logits.cpu());
    }
  }
  return at::cat(parts);
}

}  // namespace

pipeline::PassRequest TrainStep::request_for(const pipeline::MicroBatch& batch, pipeline::Schedule schedule,
                                             int chunks) const {
  pipeline::PassRequest request{.schedule = std::move(schedule), .loss = cross_entropy_sum(options_.label_smoothing)};
  request.context.batch_norm = options_.batch_norm;
  request.context.seed = options_.seed;
  for (const auto& share : pipeline::split(batch, composition_.plan.replicas))
    request.micro_batches.push_back(split(share, chunks));
  return request;
}

TrainStep::Gradients TrainStep::compute_gradients(const pipeline::MicroBatch& batch, std::int64_t step, int chunks,
                                                  bool with_logits) {
  const Plan& plan = composition_.plan;
  auto request = request_for(
      batch, pipeline::make_schedule(plan.schedule, {.stages = plan.stages(), .micro_batches = chunks}), chunks);
  request.context.training = true;
  request.context.step = step;
  request.gradient_scale = 1.0 / static_cast<double>(batch.samples());
  request.sync = composition_.sync;

  composition_.sync->begin_step();
  const pipeline::PassResult result = composition_.executor->run(std::move(request));
  const auto outcome = composition_.sync->finish_step({.examples = batch.samples(), .loss_sum = sum_of_losses(result)});
  merge_statistics(batch);

  Gradients gradients;
  gradients.stats = {outcome.total.loss_sum / static_cast<double>(outcome.total.examples), outcome.total.examples};
  gradients.divisor = outcome.divisor;
  if (with_logits) gradients.logits = logits_in_order(result);
  return gradients;
}

StepStats TrainStep::run(const pipeline::MicroBatch& batch, std::int64_t step, double lr,
                         bool count_correct_predictions) {
  const Gradients gradients = compute_gradients(batch, step, composition_.plan.chunks, count_correct_predictions);
  if (!std::isfinite(gradients.stats.loss)) {
    throw DivergedError(concat("step ", step + 1, ": the loss is ", gradients.stats.loss, "; lower train.lr (", lr,
                               " in this step) or raise train.warmup_steps"));
  }
  update_weights(lr, gradients.divisor);
  StepStats stats = gradients.stats;
  if (count_correct_predictions) stats.correct = count_correct(gradients.logits, batch.targets);
  return stats;
}

void TrainStep::update_weights(double lr, double divisor) {
  auto& executor = *composition_.executor;
  const auto shares_values = [&](ReplicaId replica, StageId stage) {
    return executor.stage(replica, stage)
        .parameters()
        .values()
        .is_same(executor.stage(ReplicaId{0}, stage).parameters().values());
  };
  // Replicas that share replica 0's values divide its update among their threads.
  std::vector<int> parts(executor.stages(), 0);
  for (int s = 0; s < executor.stages(); ++s) {
    composition_.optimizers[s]->begin_step();
    for (int r = 0; r < executor.replicas(); ++r) parts[s] += shares_values(ReplicaId{r}, StageId{s}) ? 1 : 0;
  }
  bool has_copies = false;
  executor.for_each_place(Phase::kOptimizer, [&](ReplicaId replica, StageId stage, pipeline::Stage&) {
    if (!shares_values(replica, stage)) return;
    int part = 0;
    for (int r = 0; r < index(replica); ++r) part += shares_values(ReplicaId{r}, stage) ? 1 : 0;
    composition_.optimizers[index(stage)]->update(lr, divisor, {part, parts[index(stage)]});
  });
  for (int s = 0; s < executor.stages(); ++s) has_copies = has_copies || parts[s] < executor.replicas();
  if (!has_copies) return;
  executor.for_each_place(Phase::kTransfer, [&](ReplicaId replica, StageId stage, pipeline::Stage& own) {
    if (shares_values(replica, stage)) return;
    const at::NoGradGuard no_grad;
    at::Tensor values = own.parameters().values();
    values.copy_(executor.stage(ReplicaId{0}, stage).parameters().values());
  });
}

// Running statistics of the replicas become their mean by samples, every step, so that evaluation and checkpoints see
// the same ones whenever they come and whichever replica they ask.
void TrainStep::merge_statistics(const pipeline::MicroBatch& batch) {
  auto& executor = *composition_.executor;
  const int replicas = executor.replicas();
  if (replicas == 1) return;
  const at::NoGradGuard no_grad;
  const auto shares = pipeline::split_sizes(batch.samples(), replicas);
  for (int s = 0; s < executor.stages(); ++s) {
    at::Tensor merged = executor.stage(ReplicaId{0}, StageId{s}).parameters().statistics();
    if (merged.numel() == 0) continue;
    const auto weight = [&](int r) { return static_cast<double>(shares[r]) / static_cast<double>(batch.samples()); };
    merged.mul_(weight(0));
    for (int r = 1; r < replicas; ++r) {
      merged.add_(executor.stage(ReplicaId{r}, StageId{s}).parameters().statistics().to(merged.device()), weight(r));
    }
    for (int r = 1; r < replicas; ++r) {
      at::Tensor own = executor.stage(ReplicaId{r}, StageId{s}).parameters().statistics();
      own.copy_(merged);
    }
  }
}

EvalCounts TrainStep::evaluate(const pipeline::MicroBatch& batch, at::Tensor* logits) {
  const Plan& plan = composition_.plan;
  const int chunks = plan.stages();  // enough to keep every stage busy; larger pieces run faster than many small ones
  auto request =
      request_for(batch, pipeline::make_forward_only({.stages = plan.stages(), .micro_batches = chunks}), chunks);
  const auto micro_batches = request.micro_batches;
  const pipeline::PassResult result = composition_.executor->run(std::move(request));
  EvalCounts counts;
  for (std::size_t r = 0; r < result.size(); ++r) {
    for (std::size_t m = 0; m < result[r].size(); ++m) {
      if (result[r][m].logits.defined()) counts += count_correct(result[r][m].logits, micro_batches[r][m].targets);
    }
  }
  counts.loss_sum = sum_of_losses(result);
  if (logits != nullptr) *logits = logits_in_order(result);
  return counts;
}

}  // namespace sluice::train
