#include "engine/train_step.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"
#include "core/concat.h"
#include "core/divided_up.h"
#include "core/error.h"
#include "core/text.h"
#include "engine/divergence.h"
#include "engine/running_statistics.h"
#include "optim/clip_norm.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/plan_schedule.h"

namespace sluice::engine {
namespace {

double sum_of_losses(const pipeline::PassResult& result) {
  double sum = 0;
  for (const auto& of_replica : result.micro_batches) {
    for (const auto& micro_batch : of_replica) {
      if (micro_batch.loss.defined()) sum += micro_batch.loss.item<double>();
    }
  }
  return sum;
}

// Every process does the same work for each of its samples.
FlopCount flops_of_all(const pipeline::PassResult& result, const StepBatch& batch) {
  const auto share = static_cast<double>(std::max<std::int64_t>(batch.local.samples(), 1));
  FlopCount all = result.flops;
  for (double& flops : all) flops *= static_cast<double>(batch.global_samples) / share;
  return all;
}

// Shares of different batches would train on, with some samples twice and some never, until the processes come to the
// end of an epoch at different steps and wait for each other.
void check_same_batch(const std::vector<std::int64_t>& of_processes, std::int64_t step) {
  for (std::size_t rank = 1; rank < of_processes.size(); ++rank) {
    if (of_processes[rank] == of_processes[0]) continue;
    throw BugError(concat("step ", step + 1, ": rank ", rank, " has taken batch ", of_processes[rank],
                          " of the data, but rank 0 batch ", of_processes[0],
                          " (from 0, over all epochs): they do not stand at the same place"));
  }
}

EvalCounts sum_of_counts(const pipeline::PassResult& result) {
  EvalCounts sum;
  for (const auto& of_replica : result.micro_batches) {
    for (const auto& micro_batch : of_replica) {
      if (micro_batch.score.defined()) sum += nn::counts_of(micro_batch.score);
    }
  }
  return sum;
}

at::Tensor logits_in_order(const pipeline::PassResult& result) {
  std::vector<at::Tensor> parts;
  for (const auto& of_replica : result.micro_batches) {
    for (const auto& micro_batch : of_replica) {
      if (micro_batch.logits.defined()) parts.push_back(micro_batch.logits.cpu());
    }
  }
  return parts.empty() ? at::Tensor() : at::cat(parts);
}

}  // namespace

pipeline::PassRequest TrainStep::request_for(const pipeline::MicroBatch& batch, pipeline::Schedule schedule,
                                             int chunks) const {
  pipeline::PassRequest request{.schedule = std::move(schedule),
                                .loss = nn::cross_entropy_sum(options_.label_smoothing)};
  request.context.batch_norm = options_.batch_norm;
  request.context.seed = options_.seed;
  for (const auto& share : pipeline::split(batch, composition_.plan.replicas))
    request.micro_batches.push_back(split(share, chunks));
  return request;
}

const pipeline::Schedule& TrainStep::schedule_of(int chunks) {
  const auto known = schedules_.find(chunks);
  if (known != schedules_.end()) return known->second;
  return schedules_.emplace(chunks, pipeline::make_train_schedule(composition_.plan, chunks)).first->second;
}

pipeline::PassResult TrainStep::run_training_pass(pipeline::PassRequest request, int chunks) const {
  const bool is_trial = !request.draws_failures;
  try {
    return composition_.executor->run(std::move(request));
  } catch (const Error& error) {
    if (error.exit_code() != ExitCode::kOutOfMemory || is_trial || !options_.explain_memory) throw;
    Plan plan = composition_.plan;
    plan.chunks = chunks;
    throw options_.explain_memory(error, plan);
  }
}

TrainStep::Gradients TrainStep::compute_gradients(const StepBatch& batch, std::int64_t step, int chunks,
                                                  const StepWishes& wishes) {
  auto request = request_for(batch.local, schedule_of(chunks), chunks);
  request.context.training = true;
  request.context.step = step;
  const std::int64_t targets = nn::count_targets(batch.local.targets);
  // How many targets other processes have is known when the gradients are summed.
  const std::int64_t scaled_by = std::max<std::int64_t>(is_alone() ? targets : batch.global_samples, 1);
  request.gradient_scale = 1.0 / static_cast<double>(scaled_by);
  request.sync = composition_.sync;
  request.statistics_communicators = composition_.statistics_communicators;
  if (wishes.count_correct) request.score = nn::count_correct;
  request.keep_logits = wishes.keep_logits;
  request.draws_failures = !wishes.is_trial;

  composition_.sync->begin_step();
  const pipeline::PassResult result = run_training_pass(std::move(request), chunks);
  Recorder& recorder = composition_.executor->recorder();
  const EvalCounts counted = wishes.count_correct ? sum_of_counts(result) : EvalCounts{};
  const comm::Contribution local{.targets = targets,
                                 .loss_sum = sum_of_losses(result),
                                 .top1 = counted.top1,
                                 .top5 = counted.top5,
                                 .stop_votes = wishes.stop ? 1 : 0,
                                 .batch = batch.number};
  comm::StepOutcome outcome;
  {
    const SpanScope span(is_alone() ? nullptr : recorder.process(), Phase::kAllReduce);
    outcome = composition_.sync->finish_step(local);
    check(outcome.run_local_optimizer && !outcome.weights_replaced,
          "a sync that updates the weights itself is not run by this step");
    check_same_batch(outcome.batches, step);
    merge_running_statistics(composition_, options_.batch_norm, batch.local.samples(), batch.global_samples);
  }
  recorder.add_buckets(outcome.buckets, outcome.late);
  add_tied_gradients(*composition_.executor, composition_.tied);

  const auto all_targets = static_cast<double>(std::max<std::int64_t>(outcome.total.targets, 1));
  Gradients gradients;
  gradients.stats = {.loss = outcome.total.loss_sum / all_targets,
                     .samples = batch.global_samples,
                     .targets = outcome.total.targets,
                     .stop = outcome.total.stop_votes > 0,
                     .flops = flops_of_all(result, batch)};
  gradients.divisor = outcome.divisor * all_targets / static_cast<double>(scaled_by);
  if (wishes.count_correct) {
    gradients.stats.correct = EvalCounts{.loss_sum = outcome.total.loss_sum,
                                         .top1 = outcome.total.top1,
                                         .top5 = outcome.total.top5,
                                         .targets = outcome.total.targets};
  }
  if (wishes.keep_logits) gradients.logits = logits_in_order(result);
  return gradients;
}

StepStats TrainStep::run(const StepBatch& batch, std::int64_t step, double lr, const StepWishes& wishes) {
  return apply(compute_gradients(batch, step, composition_.plan.chunks, wishes), batch, step, lr);
}

StepStats TrainStep::apply(const Gradients& gradients, const StepBatch& batch, std::int64_t step, double lr) {
  const auto require_finite = [&](const char* name, double value) {
    if (std::isfinite(value)) return;
    throw_divergence(composition_, batch.local,
                     {.step = step, .lr = lr, .what = concat(name, " is ", fixed(value, 0))});
  };
  require_finite("the loss", gradients.stats.loss);
  StepStats stats = gradients.stats;
  double divisor = gradients.divisor;
  if (options_.clip_norm > 0) {
    stats.gradient_norm = gradient_norm(divisor);
    require_finite("the norm of the gradient", *stats.gradient_norm);
    divisor /= optim::clip_factor(*stats.gradient_norm, options_.clip_norm);
  }
  update_weights(lr, divisor);
  return stats;
}

double TrainStep::gradient_norm(double divisor) const {
  const auto squares = std::make_shared<std::vector<double>>(composition_.executor->stages());
  composition_.executor->for_each_stage(
      Phase::kOptimizer, [squares](ReplicaId replica, StageId stage, pipeline::Stage& of_replica) {
        if (replica != ReplicaId{0}) return;
        const auto& parameters = of_replica.parameters();
        const at::Tensor own = parameters.gradients().narrow(0, 0, parameters.own_elements());
        (*squares)[index(stage)] = optim::sum_of_squares(own);
      });
  return of_rank_0(std::sqrt(std::accumulate(squares->begin(), squares->end(), 0.0)) / divisor);
}

// How many threads add a sum up decides its last bit, but weights have to stay equal in all processes.
double TrainStep::of_rank_0(double number) const {
  if (is_alone()) return number;
  const SpanScope span(composition_.executor->recorder().process(), Phase::kAllReduce);
  const at::Tensor shared = at::full({1}, number, at::TensorOptions().dtype(at::kDouble));
  composition_.communicator->broadcast(shared, /*root=*/0);
  return shared.item<double>();
}

// What one place does in an update: its part of a buffer that it shares with replica 0, or afterwards a copy of it.
struct TrainStep::StageUpdate {
  std::shared_ptr<optim::Optimizer> optimizer;  // of the stage
  optim::BufferPart part;
  at::Tensor own;     // defined only when this place has weights of its own
  at::Tensor source;  // replica 0's
};

std::vector<std::vector<TrainStep::StageUpdate>> TrainStep::plan_update() const {
  const auto& executor = *composition_.executor;
  std::vector<std::vector<StageUpdate>> updates(executor.replicas(), std::vector<StageUpdate>(executor.stages()));
  for (int s = 0; s < executor.stages(); ++s) {
    const at::Tensor source = executor.stage(ReplicaId{0}, StageId{s}).parameters().values();
    int parts = 0;
    for (int r = 0; r < executor.replicas(); ++r) {
      const at::Tensor values = executor.stage(ReplicaId{r}, StageId{s}).parameters().values();
      const bool shares = values.is_same(source);
      updates[r][s] = {composition_.optimizers[s], {shares ? parts++ : 0, 1}, shares ? at::Tensor{} : values, source};
    }
    for (int r = 0; r < executor.replicas(); ++r) updates[r][s].part.count = parts;
  }
  return updates;
}

void TrainStep::update_weights(double lr, double divisor) {
  const auto updates = std::make_shared<const std::vector<std::vector<StageUpdate>>>(plan_update());
  bool has_copies = false;
  for (const auto& optimizer : composition_.optimizers) optimizer->begin_step();
  for (const auto& of_replica : *updates) {
    for (const StageUpdate& update : of_replica) has_copies = has_copies || update.own.defined();
  }
  composition_.executor->for_each_stage(Phase::kOptimizer, [=](ReplicaId replica, StageId stage, pipeline::Stage&) {
    const StageUpdate& update = (*updates)[index(replica)][index(stage)];
    if (!update.own.defined()) update.optimizer->update(lr, divisor, update.part);
  });
  copy_tied_values(*composition_.executor, composition_.tied);
  if (!has_copies) return;
  composition_.executor->for_each_stage(Phase::kReceive, [=](ReplicaId replica, StageId stage, pipeline::Stage&) {
    const StageUpdate& update = (*updates)[index(replica)][index(stage)];
    const at::NoGradGuard no_grad;
    if (update.own.defined()) update.own.copy_(update.source);
  });
}

// Passes that an evaluation of so many samples is cut into.
int TrainStep::evaluation_passes(std::int64_t samples) const {
  if (!options_.memory_is_limited) return 1;
  const Plan& plan = composition_.plan;
  const std::int64_t processes = is_alone() ? 1 : composition_.communicator->size();
  const std::int64_t of_replica = divided_up(plan.global_batch, plan.replicas * processes);
  const std::int64_t micro_batch = divided_up(of_replica, plan.chunks);
  const std::int64_t most = plan.replicas * composition_.executor->devices() * micro_batch;  // in a pass
  return static_cast<int>(std::max<std::int64_t>(divided_up(samples, most), 1));
}

EvalStats TrainStep::evaluate(const pipeline::MicroBatch& batch, bool stop, at::Tensor* logits) {
  // Enough to keep every device busy; larger pieces run faster than many small ones.
  const int chunks = composition_.executor->devices();
  const auto schedule = pipeline::make_forward_only(composition_.executor->owners(), chunks);
  EvalStats local{.stop = stop};
  std::vector<at::Tensor> logits_of_passes;
  for (const pipeline::MicroBatch& part : split(batch, evaluation_passes(batch.samples()))) {
    auto request = request_for(part, schedule, chunks);
    request.score = nn::count_correct;
    request.keep_logits = logits != nullptr;
    const pipeline::PassResult result = composition_.executor->run(std::move(request));
    local.counts += sum_of_counts(result);
    local.counts.loss_sum += sum_of_losses(result);
    if (at::Tensor own = logits_in_order(result); own.defined()) logits_of_passes.push_back(std::move(own));
  }
  if (logits != nullptr) *logits = logits_of_passes.empty() ? at::Tensor() : at::cat(logits_of_passes);
  return over_processes(local);
}

EvalStats TrainStep::over_processes(const EvalStats& local) const {
  if (!composition_.communicator) return local;
  const auto as_double = [](auto number) { return static_cast<double>(number); };
  const EvalCounts& counts = local.counts;
  const at::Tensor sums = at::tensor({counts.loss_sum, as_double(counts.top1), as_double(counts.top5),
                                      as_double(counts.targets), as_double(local.stop)},
                                     at::TensorOptions().dtype(at::kDouble));
  composition_.communicator->all_reduce(sums).wait();
  return {.counts = {.loss_sum = sums[0].item<double>(),
                     .top1 = sums[1].item<std::int64_t>(),
                     .top5 = sums[2].item<std::int64_t>(),
                     .targets = sums[3].item<std::int64_t>()},
          .stop = sums[4].item<double>() > 0};
}

}  // namespace sluice::engine
