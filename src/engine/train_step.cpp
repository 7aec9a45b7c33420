#include "engine/train_step.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/failpoint.h"
#include "core/text.h"
#include "ddp/addition_sequence.h"
#include "engine/divergence.h"
#include "engine/noise_norms.h"
#include "engine/pass_sums.h"
#include "engine/running_statistics.h"
#include "engine/state.h"
#include "optim/clip_norm.h"
#include "pipeline/schedule/plan_schedule.h"

namespace sluice::engine {
namespace {

double at_least_1(std::int64_t count) { return static_cast<double>(std::max<std::int64_t>(count, 1)); }

FlopCount times(FlopCount count, double factor) {
  for (double& flops : count) flops *= factor;
  return count;
}

// Without this check, shares of different batches would be trained, with some samples twice and some never, until
// processes reach the end of an epoch at different steps and deadlock.
void check_same_batch(const std::vector<std::int64_t>& of_processes, std::int64_t step) {
  for (std::size_t rank = 1; rank < of_processes.size(); ++rank) {
    if (of_processes[rank] == of_processes[0]) continue;
    throw BugError("step ", step + 1, ": rank ", rank, " trains batch ", of_processes[rank],
                   ", but rank 0 trains batch ", of_processes[0], " (numbered from 0 over all epochs)");
  }
}

}  // namespace

pipeline::ScoreFunction TrainStep::counter() const {
  return [task = options_.task](const auto& outputs, const auto& targets) { return task->count(outputs, targets); };
}

const pipeline::Schedule& TrainStep::schedule_of(int chunks) {
  const auto known = schedules_.find(chunks);
  if (known != schedules_.end()) return known->second;
  return schedules_.emplace(chunks, pipeline::make_train_schedule(composition_.plan, chunks)).first->second;
}

pipeline::PassResult TrainStep::run_training_pass(pipeline::PassRequest request, int chunks) {
  const bool is_trial = !request.draws_failures;
  if (graphs_ && !is_trial) request.graphs = graphs_->of(*composition_.executor, request);
  try {
    return composition_.executor->run(std::move(request));
  } catch (const Error& error) {
    if (graphs_) graphs_->forget();
    if (error.exit_code() != ExitCode::kOutOfMemory || is_trial || !options_.explain_memory) throw;
    Plan plan = composition_.plan;
    plan.chunks = chunks;
    throw options_.explain_memory(error, plan);
  }
}

// Sums of local replicas on GPUs run on their own streams (ddp/local_sum.h).
bool TrainStep::sums_outlast_pass() const {
  const auto& executor = *composition_.executor;
  return !is_alone() ||
         (executor.replicas() > 1 && executor.stage(ReplicaId{0}, StageId{0}).parameters().values().is_cuda());
}

struct TrainStep::Contributed {
  pipeline::PassResult result;
  std::vector<std::int64_t> samples;  // [replica]: samples that have run
  comm::Contribution local;
  std::shared_ptr<FirstNorms> first;  // null: norms not requested, or several replicas
};

TrainStep::Contributed TrainStep::contribute(const StepBatch& batch, std::int64_t step, int chunks,
                                             double gradient_scale, const StepRequest& wanted) {
  MicroBatches of_batch = split_up(batch, chunks);
  const pipeline::Schedule& schedule = schedule_of(static_cast<int>(of_batch.front().size()));
  auto request = request_for(std::move(of_batch), schedule);
  if (options_.micro_batch > 0) sum_in_tree(request, parts_of(batch), wanted.takes_digests);
  request.context.training = true;
  request.context.step = step;
  request.gradient_scale = gradient_scale;
  request.sync = composition_.sync;
  request.statistics_communicators = composition_.statistics_communicators;
  if (wanted.counts_scores) request.score = counter();
  request.keep_logits = wanted.keep_logits;
  request.draws_failures = !wanted.is_trial;
  request.less_memory = options_.less_memory;
  const MicroBatches micro_batches = request.micro_batches;
  std::shared_ptr<FirstNorms> first;
  if (wanted.take_norms && is_alone() && composition_.plan.replicas == 1)
    first = FirstNorms::of(*composition_.executor, request, *options_.task);
  if (first) {
    request.after_gradient = [first](ReplicaId, const pipeline::Stage& stage, const pipeline::Action& action) {
      first->take(stage, action);
    };
  }

  Contributed own{.result = run_training_pass(std::move(request), chunks), .first = first};
  own.local = {.loss_sum = sum_of_losses(own.result),
               .scores = wanted.counts_scores ? sum_of_scores(own.result, *options_.task) : std::vector<double>(),
               .stop_votes = static_cast<int>(wanted.stop),
               .regroup_votes = static_cast<int>(wanted.regroup),
               .event_votes = static_cast<int>(wanted.has_events),
               .batch = batch.number};
  if (options_.micro_batch > 0)
    own.local.of_micro_batches = numbers_of_micro_batches(own.result, *options_.task, wanted.counts_scores);
  for (const comm::ReplicaShare& share : shares_run(own.result, micro_batches, *options_.task)) {
    own.samples.push_back(share.samples);
    own.local.samples += share.samples;
    own.local.targets += share.targets;
    if (wanted.take_norms) own.local.of_replicas.push_back(share);
  }
  return own;
}

comm::StepOutcome TrainStep::sum_gradients(const Contributed& own, std::int64_t step, std::int64_t micro_batches) {
  const SpanScope span(sums_outlast_pass() ? composition_.executor->recorder().process() : nullptr, Phase::kAllReduce);
  const auto merge_statistics = [&] {
    merge_running_statistics(composition_, options_.numerics.batch_norm, own.samples, micro_batches);
  };
  const bool merges_first = composition_.sync->takes_statistics();
  if (merges_first) merge_statistics();
  comm::StepOutcome outcome = composition_.sync->finish_step(own.local);
  check_same_batch(outcome.batches, step);
  if (!merges_first) merge_statistics();
  return outcome;
}

StepStats TrainStep::stats_of(const Contributed& own, const comm::StepOutcome& outcome, bool counts_scores) {
  const comm::Contribution& total = outcome.total;
  // Every process does the same work per sample; one without samples assumes that of its last step with some. With a
  // FeatureSource, rank 0's hits stand for all.
  if (own.local.samples > 0) sample_flops_ = times(own.result.flops, 1 / at_least_1(own.local.samples));
  StepStats stats{.loss = total.loss_sum / at_least_1(total.targets),
                  .samples = total.samples,
                  .targets = total.targets,
                  .stop = total.stop_votes > 0,
                  .regroup = total.regroup_votes > 0,
                  .has_events = total.event_votes > 0,
                  .skipped = outcome.update == comm::Update::kSkipped,
                  .flops = times(sample_flops_, at_least_1(total.samples))};
  if (counts_scores)
    stats.scores = ScoreSums{.loss_sum = total.loss_sum, .targets = total.targets, .sums = total.scores};
  return stats;
}

TrainStep::Gradients TrainStep::compute_gradients(const StepBatch& batch, std::int64_t step, int chunks,
                                                  const StepRequest& wanted) {
  // The number of targets in other processes is known only when the gradients are summed.
  const bool is_in_order = options_.micro_batch > 0, knows_targets = is_alone() && !is_in_order;
  const double scaled_by =
      at_least_1(knows_targets ? options_.task->count_targets(batch.local.targets) : batch.global_samples);
  const comm::StepStart start{.step = step,
                              .lr = wanted.lr,
                              .is_trial = wanted.is_trial,
                              .gradient_scale = 1.0 / scaled_by,
                              .takes_norms = wanted.take_norms,
                              .micro_batches = is_in_order ? parts_of(batch).all : 0,
                              .parts = is_in_order ? parts_of(batch).parts : 1};
  if (composition_.sync->begin_step(start)) take_weights();
  std::optional<BufferSnapshot> before;
  if (composition_.sync->may_skip()) before.emplace(composition_);

  const Contributed own = contribute(batch, step, chunks, start.gradient_scale, wanted);
  const comm::StepOutcome outcome = sum_gradients(own, step, start.micro_batches);
  if (outcome.update == comm::Update::kSkipped) {
    check(before.has_value(), "a sync that skips a step only if may_skip() was true");
    before->restore();
  }
  composition_.executor->recorder().add_buckets(outcome.buckets, outcome.late);

  Gradients gradients{.stats = stats_of(own, outcome, wanted.counts_scores),
                      .divisor = outcome.divisor * at_least_1(outcome.total.targets) / scaled_by,
                      .update = outcome.update,
                      .weights_replaced = outcome.weights_replaced,
                      .same_in_all_processes = outcome.same_gradients};
  gradients.stats.norms =
      noise_norms(*composition_.executor, {outcome, own.first.get(), start.gradient_scale, gradients.divisor});
  if (outcome.update == comm::Update::kLocal) add_tied_gradients(*composition_.executor, composition_.tied);
  if (digests_) digests_->on_sums();
  if (wanted.keep_logits) gradients.logits = logits_in_order(own.result);
  return gradients;
}

StepStats TrainStep::run(const StepBatch& batch, std::int64_t step, double lr, StepRequest wanted) {
  wanted.lr = lr;
  return apply(compute_gradients(batch, step, composition_.plan.chunks, wanted), batch, step, lr, wanted.before_update);
}

StepStats TrainStep::apply(const Gradients& gradients, const StepBatch& batch, std::int64_t step, double lr,
                           const std::function<void()>& before_update) {
  const auto require_finite = [&](const char* name, double value) {
    if (std::isfinite(value)) return;
    throw_divergence(composition_, batch.local,
                     {.step = step, .lr = lr, .what = concat(name, " is ", fixed(value, 0))});
  };
  StepStats stats = gradients.stats;
  if (!stats.skipped) require_finite("the loss", stats.loss);
  if (gradients.update != comm::Update::kLocal) {
    if (gradients.weights_replaced) take_weights();
    return stats;
  }
  double divisor = gradients.divisor;
  if (options_.clip_norm > 0) {
    stats.gradient_norm = gradient_norm(divisor, gradients.same_in_all_processes);
    require_finite("the norm of the gradient", *stats.gradient_norm);
    divisor /= optim::clip_factor(*stats.gradient_norm, options_.clip_norm);
  }
  failpoint("gradients-summed");
  if (before_update) before_update();
  if (sums_) sums_->add(gradients.divisor);
  update_weights(lr, divisor);
  failpoint("weights-updated");
  if (composition_.sync->on_updated()) take_weights();
  return stats;
}

double TrainStep::gradient_norm(double divisor, bool same_in_all_processes) const {
  const bool by_parameter = options_.micro_batch > 0;  // in the order of the model, which the partition does not change
  const auto squares = std::make_shared<std::vector<std::vector<double>>>(composition_.executor->stages());
  composition_.executor->for_each_stage(
      Phase::kOptimizer, [squares, by_parameter](ReplicaId replica, StageId stage, pipeline::Stage& of_replica) {
        if (replica != ReplicaId{0}) return;
        const auto& parameters = of_replica.parameters();
        auto& own = (*squares)[index(stage)];
        const auto add = [&](std::int64_t begin, std::int64_t numel) {
          own.push_back(optim::sum_of_squares(parameters.gradients().narrow(0, begin, numel)));
        };
        if (!by_parameter) return add(0, parameters.updated_elements());
        for (const pipeline::ParameterEntry& entry : parameters.entries())
          if (entry.begin < parameters.updated_elements()) add(entry.begin, entry.numel);
      });
  double sum = 0;
  for (const auto& of_stage : *squares) sum = std::accumulate(of_stage.begin(), of_stage.end(), sum);
  const double own = std::sqrt(sum) / divisor;
  return same_in_all_processes ? of_rank_0(own) : own;
}

// On GPUs the last bit of a sum may differ between processes, but weights must stay equal in all of them.
double TrainStep::of_rank_0(double number) const {
  if (is_alone()) return number;
  const SpanScope span(composition_.executor->recorder().process(), Phase::kAllReduce);
  const at::Tensor shared = at::full({1}, number, at::TensorOptions().dtype(at::kDouble));
  composition_.sync->take_rank_0s(shared);
  return shared.item<double>();
}

// The part of a stage's buffer that each replica updates. Replicas that share replica 0's weights divide the work;
// `count` 0: the replica has its own weights.
std::vector<std::vector<optim::BufferPart>> TrainStep::plan_update() const {
  const auto& executor = *composition_.executor;
  std::vector<std::vector<optim::BufferPart>> parts(executor.replicas(),
                                                    std::vector<optim::BufferPart>(executor.stages()));
  for (int s = 0; s < executor.stages(); ++s) {
    const at::Tensor source = executor.stage(ReplicaId{0}, StageId{s}).parameters().values();
    std::vector<int> sharing;
    for (int r = 0; r < executor.replicas(); ++r) {
      if (executor.stage(ReplicaId{r}, StageId{s}).parameters().values().is_same(source)) sharing.push_back(r);
    }
    const int count = static_cast<int>(sharing.size());
    for (int r = 0; r < executor.replicas(); ++r) parts[r][s] = {0, 0};
    for (int i = 0; i < count; ++i) parts[sharing[i]][s] = {i, count};
  }
  return parts;
}

void TrainStep::update_weights(double lr, double divisor) {
  for (const auto& optimizer : composition_.optimizers) optimizer->begin_step();
  composition_.executor->for_each_stage(Phase::kOptimizer,
                                        [=, parts = plan_update(), optimizers = composition_.optimizers](
                                            ReplicaId replica, StageId stage, pipeline::Stage&) {
                                          const optim::BufferPart& part = parts[index(replica)][index(stage)];
                                          if (part.count > 0) optimizers[index(stage)]->update(lr, divisor, part);
                                        });
  spread_weights();
}

void TrainStep::with_average(const std::function<void()>& evaluate) {
  check(has_average(), "an average of the weights (has_average())");
  exchange_average();
  try {
    evaluate();
  } catch (...) {
    exchange_average();
    throw;
  }
  exchange_average();
}

void TrainStep::exchange_average() {
  const at::NoGradGuard no_grad;
  const auto& executor = *composition_.executor;
  for (int s = 0; s < executor.stages(); ++s) {
    const at::Tensor average = composition_.optimizers[s]->average();
    const at::Tensor values =
        executor.stage(ReplicaId{0}, StageId{s}).parameters().values().narrow(0, 0, average.numel());
    const at::Tensor weights = values.clone();
    values.copy_(average);
    average.copy_(weights);
  }
  take_weights();
}

std::vector<double> TrainStep::take_gradient_norms() {
  check(sums_.has_value(), "gradient norms requested only with TrainStepOptions::sums_gradients");
  return sums_->take();
}

void TrainStep::take_weights() {
  composition_.executor->wait_for_caller();  // the caller has queued the writes
  spread_weights();
}

void TrainStep::spread_weights() {
  const auto& executor = *composition_.executor;
  copy_tied_values(*composition_.executor, composition_.tied);
  std::vector<std::vector<at::Tensor>> values(executor.stages());  // [stage][replica]; those that are trained
  const auto are_same = [](const at::Tensor& a, const at::Tensor& b) { return a.data_ptr() == b.data_ptr(); };
  bool has_copies = false;
  for (int s = 0; s < executor.stages(); ++s) {
    for (int r = 0; r < executor.replicas(); ++r) {
      const pipeline::FlatParameters& parameters = executor.stage(ReplicaId{r}, StageId{s}).parameters();
      values[s].push_back(parameters.values().narrow(0, 0, parameters.gradients().numel()));
    }
    has_copies |= !std::ranges::all_of(values[s], [&](const at::Tensor& own) { return are_same(own, values[s][0]); });
  }
  if (!has_copies) return;
  for (const auto& round : ddp::spread_in_pairs(executor.replicas())) {
    composition_.executor->for_each_stage(
        Phase::kReceive, [values, round, are_same](ReplicaId replica, StageId id, pipeline::Stage&) {
          const auto found = std::ranges::find(round, index(replica), &ddp::Handover::to);
          if (found == round.end()) return;
          const at::NoGradGuard no_grad;
          const at::Tensor &source = values[index(id)][found->from], &own = values[index(id)][found->to];
          if (!are_same(own, source)) own.copy_(source);
        });
  }
}

}  // namespace sluice::engine
