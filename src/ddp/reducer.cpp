#include "ddp/reducer.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"

namespace sluice::ddp {

Reducer::Reducer(std::vector<StageGradients> stages, ReducerOptions options, Network network)
    : stages_(std::move(stages)), totals_(network.totals) {
  check(!stages_.empty(), "a reducer needs at least one stage");
  for (int stage = 0; stage < static_cast<int>(stages_.size()); ++stage) {
    const StageGradients& gradients = stages_[stage];
    check(static_cast<int>(gradients.flat.size()) == replicas() && gradients.devices.size() == gradients.flat.size(),
          "every stage has one flat gradient and one device per replica");
    const auto bucket_elements =
        static_cast<std::int64_t>(options.bucket_bytes / gradients.flat.front().element_size());
    int number = 0;
    for (Bucket& bucket : make_buckets(gradients.extents, bucket_elements)) {
      BucketState& state = buckets_.emplace_back();
      state.stage = stage;
      state.number = number++;
      state.bucket = std::move(bucket);
      state.reported.assign(replicas(), std::vector<char>(state.bucket.params.size()));
      state.missing.resize(replicas());
      state.ready.resize(replicas());
      for (int position = 0; position < static_cast<int>(state.bucket.params.size()); ++position) {
        position_of_param_[index(state.bucket.params[position])] = {&state, position};
      }
    }
  }
  connect(network, options.record_times);
}

void Reducer::connect(const Network& network, bool record_times) {
  if (totals_ && record_times) timing_.emplace(totals_->rank(), totals_->size());
  for (int stage = 0; stage < static_cast<int>(network.of_stage.size()); ++stage) {
    std::vector<at::Tensor> buckets;
    for (const BucketState& state : buckets_) {
      if (state.stage == stage) buckets.push_back(share_of(state, 0));
    }
    between_processes_.push_back(
        std::make_unique<OrderedAllReduce>(network.of_stage[stage], stages_[stage].devices.front(), std::move(buckets),
                                           record_times ? comm::EndTime::kNoted : comm::EndTime::kUnknown));
  }
}

at::Tensor Reducer::share_of(const BucketState& state, int replica) const {
  return stages_[state.stage].flat[replica].narrow(0, state.bucket.begin, state.bucket.end - state.bucket.begin);
}

void Reducer::begin_step() {
  for (const auto& stage : between_processes_) stage->begin_step();
  for (BucketState& state : buckets_) {
    for (auto& reported : state.reported) std::fill(reported.begin(), reported.end(), char{0});
    std::fill(state.missing.begin(), state.missing.end(), static_cast<int>(state.bucket.params.size()));
    state.missing_replicas.store(replicas(), std::memory_order_relaxed);
  }
  open_buckets_.store(static_cast<int>(buckets_.size()), std::memory_order_release);
}

void Reducer::on_grad_ready(ReplicaId replica, ParamId param) {
  const auto found = position_of_param_.find(index(param));
  check(found != position_of_param_.end(), "a gradient was reported for a parameter that is not being reduced");
  report(*found->second.bucket, index(replica), found->second.position);
}

void Reducer::on_backward_done(ReplicaId replica, StageId stage) {
  for (BucketState& state : buckets_) {
    if (stages_[state.stage].stage != stage) continue;
    for (int position = 0; position < static_cast<int>(state.bucket.params.size()); ++position) {
      if (state.reported[index(replica)][position] == 0) report(state, index(replica), position);
    }
  }
}

void Reducer::report(BucketState& state, int replica, int position) {
  char& reported = state.reported[replica][position];
  check(reported == 0, "the gradient of a parameter was reported twice in one step");
  reported = 1;
  if (--state.missing[replica] > 0) return;
  state.ready[replica] = device::Stream::current(stages_[state.stage].devices[replica]).record();
  if (state.missing_replicas.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  reduce(state);
  if (!between_processes_.empty()) between_processes_[state.stage]->ready(state.number, state.reduced);
  open_buckets_.fetch_sub(1, std::memory_order_acq_rel);
}

void Reducer::reduce(BucketState& state) {
  const StageGradients& gradients = stages_[state.stage];
  const at::NoGradGuard no_grad;
  const auto stream = device::Stream::current(gradients.devices[0]);
  stream.wait(state.ready[0]);
  at::Tensor sum = share_of(state, 0);
  for (int replica = 1; replica < replicas(); ++replica) {
    sum.add_(device::transfer(share_of(state, replica), state.ready[replica], stream));
  }
  state.reduced = stream.record();
}

comm::StepOutcome Reducer::finish_step(const comm::Contribution& local) {
  check(open_buckets_.load(std::memory_order_acquire) == 0, "a step ended before every gradient was reported");
  for (const BucketState& state : buckets_) state.reduced.synchronize();
  Times times;
  for (const auto& stage : between_processes_) times.push_back(stage->wait());
  if (!totals_) return {.total = local};
  return total_of(local, times);
}

// A vector of the contribution and a place for every process's batch and times, zero but for our own: the sum over the
// processes is what all have to say.
at::Tensor Reducer::numbers_of(const comm::Contribution& local, const Times& times) const {
  const auto buckets = static_cast<std::int64_t>(timing_ ? buckets_.size() : 0);
  const at::Tensor numbers =
      at::zeros({kCounts + totals_->size() * (1 + buckets * 2)}, at::TensorOptions().dtype(at::kDouble));
  auto* data = numbers.mutable_data_ptr<double>();
  data[0] = static_cast<double>(local.targets);
  data[1] = local.loss_sum;
  data[2] = static_cast<double>(local.top1);
  data[3] = static_cast<double>(local.top5);
  data[4] = static_cast<double>(local.stop_votes);
  data[kCounts + totals_->rank()] = static_cast<double>(local.batch);
  if (!timing_) return numbers;
  double* own = data + kCounts + totals_->size() + totals_->rank() * buckets * 2;
  for (const auto& of_stage : times) {
    for (const SumTimes& sum : of_stage) {
      *own++ = static_cast<double>(sum.begin);
      *own++ = static_cast<double>(sum.end);
    }
  }
  return numbers;
}

void Reducer::tell_times(const double* all_times, const Times& times, comm::StepOutcome& outcome) {
  std::vector<std::vector<SumTimes>> of_process(totals_->size());
  for (auto& of_one : of_process) {
    for (std::size_t i = 0; i < buckets_.size(); ++i, all_times += 2)
      of_one.push_back({static_cast<Nanoseconds>(all_times[0]), static_cast<Nanoseconds>(all_times[1])});
  }
  const Readiness readiness = timing_->readiness(of_process);
  outcome.late = readiness.late;
  for (std::size_t stage = 0; stage < times.size(); ++stage) {
    for (int bucket = 0; bucket < static_cast<int>(times[stage].size()); ++bucket) {
      const SumTimes& own = times[stage][bucket];
      const Nanoseconds all_there = readiness.all_there[outcome.buckets.size()];
      outcome.buckets.push_back({stages_[stage].stage, bucket, own.begin, all_there, own.end});
    }
  }
}

comm::StepOutcome Reducer::total_of(const comm::Contribution& local, const Times& times) {
  const at::Tensor numbers = numbers_of(local, times);
  totals_->all_reduce(numbers).wait();
  const auto* data = numbers.const_data_ptr<double>();
  comm::StepOutcome outcome{.total = {.targets = static_cast<std::int64_t>(data[0]),
                                      .loss_sum = data[1],
                                      .top1 = static_cast<std::int64_t>(data[2]),
                                      .top5 = static_cast<std::int64_t>(data[3]),
                                      .stop_votes = static_cast<int>(data[4]),
                                      .batch = local.batch}};
  const auto* batches = data + kCounts;
  for (int process = 0; process < totals_->size(); ++process)
    outcome.batches.push_back(static_cast<std::int64_t>(batches[process]));
  if (timing_) tell_times(batches + totals_->size(), times, outcome);
  return outcome;
}

}  // namespace sluice::ddp
