// The evaluations of TrainStep.
#include <algorithm>

#include <ATen/ATen.h>

#include "core/divided_up.h"
#include "engine/pass_sums.h"
#include "engine/train_step.h"
#include "pipeline/schedule/generators.h"

namespace sluice::engine {

int TrainStep::evaluation_passes(std::int64_t samples) const {
  if (!options_.memory_is_limited) return 1;
  const Plan& plan = composition_.plan;
  const std::int64_t of_replica = divided_up(plan.global_batch, plan.replicas * composition_.processes());
  const std::int64_t micro_batch = divided_up(of_replica, plan.chunks);
  const std::int64_t most = plan.replicas * composition_.executor->devices() * micro_batch;
  return static_cast<int>(std::max<std::int64_t>(divided_up(samples, most), 1));
}

pipeline::PassResult TrainStep::evaluate_pass(MicroBatches micro_batches, bool keep_logits) {
  const auto chunks = static_cast<int>(micro_batches.front().size());
  auto request =
      request_for(std::move(micro_batches), pipeline::make_forward_only(composition_.executor->owners(), chunks));
  request.score = counter();
  request.keep_logits = keep_logits;
  request.less_memory = pipeline::kLessEvaluationMemory;
  return composition_.executor->run(std::move(request));
}

EvalStats TrainStep::evaluate(const StepBatch& batch, bool stop, at::Tensor* logits) {
  if (options_.micro_batch > 0) return evaluate_in_order(batch, stop, logits);
  // Just enough chunks to keep every device busy; larger pieces run faster.
  const int chunks = composition_.executor->devices();
  EvalStats local{.stop = stop};
  std::vector<at::Tensor> logits_of_passes;
  const int passes = evaluation_passes(batch.local.samples());
  for (const pipeline::MicroBatch& part : split(batch.local, passes)) {
    const MicroBatches micro_batches = split_up({part, divided_up(batch.global_samples, passes)}, chunks);
    const pipeline::PassResult result = evaluate_pass(micro_batches, logits != nullptr);
    local.scores += {.loss_sum = sum_of_losses(result), .sums = sum_of_scores(result, *options_.task)};
    for (const comm::ReplicaShare& share : shares_run(result, micro_batches, *options_.task))
      local.scores.targets += share.targets;
    if (at::Tensor own = logits_in_order(result); own.defined()) logits_of_passes.push_back(std::move(own));
  }
  if (logits != nullptr) *logits = logits_of_passes.empty() ? at::Tensor() : at::cat(logits_of_passes);
  return over_processes(local);
}

// The sums that evaluate_in_order() makes of the numbers of single micro-batches.
class TrainStep::OrderedEvaluation {
 public:
  OrderedEvaluation(const pipeline::MicroBatchParts& how, std::int64_t scores)
      : how_(how), rows_(at::zeros({how.all, 1 + scores}, at::kDouble)) {}

  // first: number of the pass's first micro-batch among those of its replica.
  void add(const pipeline::PassResult& result, const task::Task& task, std::int64_t first) {
    const auto numbers = numbers_of_micro_batches(result, task, /*counts_scores=*/true);
    auto next = numbers.begin();
    logits_.resize(result.micro_batches.size());
    for (std::size_t r = 0; r < result.micro_batches.size(); ++r) {
      std::int64_t row = how_.of(static_cast<std::int64_t>(r)).begin + first;
      for (const pipeline::MicroBatchResult& own : result.micro_batches[r]) {
        if (!own.has_run) continue;
        rows_[row++].copy_(at::tensor(*next++, at::kDouble));
        if (own.logits.defined()) logits_[r].push_back(own.logits.cpu());
      }
    }
  }

  // [micro-batch of all processes, 1 + scores]; zeros for those of others.
  [[nodiscard]] const at::Tensor& rows() const { return rows_; }

  [[nodiscard]] ScoreSums sums() const {
    return sum_in_order(rows_.const_data_ptr<double>(), how_.all, static_cast<std::size_t>(rows_.size(1) - 1));
  }

  // This process's logits, in the order of the batch.
  [[nodiscard]] at::Tensor logits() const {
    std::vector<at::Tensor> all;
    for (const auto& of_replica : logits_) all.insert(all.end(), of_replica.begin(), of_replica.end());
    return joined_logits(all);
  }

 private:
  pipeline::MicroBatchParts how_;
  at::Tensor rows_;
  std::vector<std::vector<at::Tensor>> logits_;  // [replica][micro-batch]
};

EvalStats TrainStep::evaluate_in_order(const StepBatch& batch, bool stop, at::Tensor* logits) {
  const MicroBatches all = split_up(batch, 1);
  const auto chunks = static_cast<std::size_t>(composition_.executor->devices());
  OrderedEvaluation evaluation(parts_of(batch), std::ssize(options_.task->no_sums()));
  EvalStats local{.stop = stop};
  for (std::size_t begin = 0; begin < all.front().size(); begin += chunks) {
    MicroBatches part;
    for (const auto& of_replica : all) {
      auto& own = part.emplace_back();
      for (std::size_t i = begin; i < begin + chunks; ++i)
        own.push_back(i < of_replica.size() ? of_replica[i] : pipeline::part_of(of_replica.back(), 0, 0));
    }
    const pipeline::PassResult result = evaluate_pass(part, logits != nullptr);
    for (const comm::ReplicaShare& share : shares_run(result, part, *options_.task))
      local.scores.targets += share.targets;
    evaluation.add(result, *options_.task, static_cast<std::int64_t>(begin));
  }
  if (logits != nullptr) *logits = evaluation.logits();
  if (!is_alone()) composition_.sync->sum(evaluation.rows());
  EvalStats stats = over_processes(local);
  const std::int64_t targets = stats.scores.targets;
  stats.scores = evaluation.sums();
  stats.scores.targets = targets;
  return stats;
}

EvalStats TrainStep::over_processes(const EvalStats& local) const {
  if (is_alone()) return local;
  const ScoreSums& own = local.scores;
  std::vector<double> numbers{own.loss_sum, static_cast<double>(own.targets), local.stop ? 1.0 : 0.0};
  numbers.insert(numbers.end(), own.sums.begin(), own.sums.end());
  const at::Tensor sums = at::tensor(numbers, at::kDouble);
  composition_.sync->sum(sums);
  const auto* all = sums.const_data_ptr<double>();
  return {.scores = {.loss_sum = all[0],
                     .targets = static_cast<std::int64_t>(all[1]),
                     .sums = {all + 3, all + sums.numel()}},
          .stop = all[2] > 0};
}

}  // namespace sluice::engine
