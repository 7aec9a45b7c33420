#include "ddp/reducer.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"

namespace sluice::ddp {

Reducer::Reducer(std::vector<StageGradients> stages, ReducerOptions options, Network network)
    : stages_(std::move(stages)), totals_(std::move(network.totals)) {
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
        place_of_param_[index(state.bucket.params[position])] = {&state, position};
      }
    }
  }
  connect(network);
}

void Reducer::connect(const Network& network) {
  for (int stage = 0; stage < static_cast<int>(network.of_stage.size()); ++stage) {
    std::vector<at::Tensor> buckets;
    for (const BucketState& state : buckets_) {
      if (state.stage == stage) buckets.push_back(share_of(state, 0));
    }
    between_processes_.push_back(std::make_unique<OrderedAllReduce>(
        network.of_stage[stage], stages_[stage].devices.front(), std::move(buckets)));
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
  const auto place = place_of_param_.find(index(param));
  check(place != place_of_param_.end(), "a gradient was reported for a parameter that is not being reduced");
  report(*place->second.bucket, index(replica), place->second.position);
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
  for (const auto& stage : between_processes_) stage->wait();
  if (!totals_) return {.total = local};
  const at::Tensor sums =
      at::tensor({static_cast<double>(local.examples), local.loss_sum, static_cast<double>(local.stop_votes)},
                 at::TensorOptions().dtype(at::kDouble));
  totals_->all_reduce(sums).wait();
  return {.total = {.examples = sums[0].item<std::int64_t>(),
                    .loss_sum = sums[1].item<double>(),
                    .stop_votes = sums[2].item<int>()}};
}

}  // namespace sluice::ddp
