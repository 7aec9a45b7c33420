#include "ddp/local_sum.h"

#include <algorithm>
#include <map>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"
#include "ddp/squares.h"
#include "device/round.h"

namespace sluice::ddp {

namespace {

bool has_gpus(const std::vector<comm::SyncedStage>& stages) {
  return std::ranges::any_of(stages, [](const comm::SyncedStage& stage) {
    return std::ranges::find(stage.devices, device::DeviceKind::kCuda, &device::Device::kind) != stage.devices.end();
  });
}

}  // namespace

LocalSum::LocalSum(std::vector<comm::SyncedStage> stages, const Options& options, Complete complete)
    : stages_(std::move(stages)), complete_(std::move(complete)), options_(options) {
  check(!stages_.empty(), "at least one stage");
  for (int stage = 0; stage < static_cast<int>(stages_.size()); ++stage) {
    const comm::SyncedStage& synced = stages_[stage];
    check(static_cast<int>(synced.gradients.size()) == replicas() && synced.devices.size() == synced.gradients.size(),
          "one flat gradient and one device per replica in every stage");
    add_buckets(stage, options.bucket_bytes);
    if (replicas() == 1) continue;
    for (const device::Device device : synced.devices) queues_.try_emplace(device, device::Stream::make_beside(device));
  }
  fixed_additions_ =
      options.order == Order::kInPairs || has_gpus(stages_) ? add_in_pairs(replicas()) : add_in_turn(replicas());
}

void LocalSum::add_buckets(int stage, std::size_t bucket_bytes) {
  const comm::SyncedStage& synced = stages_[stage];
  const auto elements = static_cast<std::int64_t>(bucket_bytes / synced.gradients.front().element_size());
  int number = 0;
  for (Bucket& bucket : make_buckets(synced.extents, elements)) {
    BucketState& state = buckets_.emplace_back();
    state.stage = stage;
    state.number = number++;
    state.bucket = std::move(bucket);
    state.reported.assign(replicas(), std::vector<char>(state.bucket.params.size()));
    state.missing.resize(replicas());
    state.ready.resize(replicas());
    state.squares.resize(replicas());
    state.squares_ns.resize(replicas());
    for (int position = 0; position < static_cast<int>(state.bucket.params.size()); ++position) {
      position_of_param_[index(state.bucket.params[position])] = {&state, position};
    }
  }
}

std::vector<at::Tensor> LocalSum::buckets_of(int stage) const {
  std::vector<at::Tensor> buckets;
  for (const BucketState& state : buckets_) {
    if (state.stage == stage) buckets.push_back(share_of(state, {}));
  }
  return buckets;
}

std::vector<at::Tensor> LocalSum::sums_of(int stage, int bucket) const {
  const auto found = std::ranges::find_if(
      buckets_, [&](const BucketState& state) { return state.stage == stage && state.number == bucket; });
  std::vector<at::Tensor> sums;
  for (const Summand& share : sequence_.sums) sums.push_back(share_of(*found, share));
  return sums;
}

int LocalSum::bucket_with(int stage, std::int64_t element) const {
  const auto found = std::ranges::find_if(buckets_, [&](const BucketState& state) {
    return state.stage == stage && state.bucket.begin <= element && element < state.bucket.end;
  });
  check(found != buckets_.end(), "every element of a stage's gradients is in a bucket");
  return found->number;
}

at::Tensor LocalSum::share_of(const BucketState& state, const Summand& share) const {
  const comm::SyncedStage& stage = stages_[state.stage];
  const at::Tensor& flat =
      share.node == 0 ? stage.gradients[share.replica] : stage.nodes[share.replica]->at(share.node);
  return flat.narrow(0, state.bucket.begin, state.bucket.end - state.bucket.begin);
}

LocalSum::~LocalSum() {
  if (is_finished_) return;
  try {
    wait_for_queues();
  } catch (const std::exception&) {
    // The device has failed, so nothing runs on it. The call that ended the step has already reported the error.
  }
}

void LocalSum::begin_step(const comm::StepStart& start) {
  if (!is_finished_) wait_for_queues();  // the sums of a failed step may still write gradients
  is_finished_ = false;
  takes_norms_ = start.takes_norms;
  is_in_tree_ = start.micro_batches > 0;
  sequence_ = {.additions = fixed_additions_, .sums = {}};
  if (is_in_tree_) {
    check(!takes_norms_, "no norms of single replicas in a step with a tree");
    std::vector<NumberRange> ranges;
    for (std::int64_t r = 0; r < replicas(); ++r)
      ranges.push_back(start.parts.range(start.micro_batches, options_.rank * replicas() + r));
    sequence_ = add_in_tree(ranges, start.micro_batches);
    // A replica 0 without micro-batches takes over the sum of another one.
    moved_.reset();
    if (sequence_.sums.size() == 1 && sequence_.sums.front().replica != 0)
      moved_ = std::exchange(sequence_.sums.front(), Summand{});
  }
  for (BucketState& state : buckets_) {
    for (auto& reported : state.reported) std::fill(reported.begin(), reported.end(), char{0});
    std::fill(state.missing.begin(), state.missing.end(), static_cast<int>(state.bucket.params.size()));
    state.missing_replicas.store(replicas(), std::memory_order_relaxed);
  }
  open_buckets_.store(buckets(), std::memory_order_release);
}

void LocalSum::on_grad_ready(ReplicaId replica, ParamId param) {
  const auto found = position_of_param_.find(index(param));
  check(found != position_of_param_.end(), "a gradient is reported only for a parameter that is being reduced");
  report(*found->second.bucket, index(replica), found->second.position);
}

void LocalSum::on_backward_done(ReplicaId replica, StageId stage) {
  for (BucketState& state : buckets_) {
    if (stages_[state.stage].stage != stage) continue;
    for (int position = 0; position < static_cast<int>(state.bucket.params.size()); ++position) {
      if (state.reported[index(replica)][position] == 0) report(state, index(replica), position);
    }
  }
}

void LocalSum::report(BucketState& state, int replica, int position) {
  char& reported = state.reported[replica][position];
  check(reported == 0, "each gradient is reported once per step");
  reported = 1;
  if (--state.missing[replica] > 0) return;
  if (takes_norms_) take_square(state, replica);
  state.ready[replica] = device::Stream::current(stages_[state.stage].devices[replica]).record();
  if (state.missing_replicas.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  add_up(state);
  if (complete_) complete_(state.stage, state.number, state.summed);
  open_buckets_.fetch_sub(1, std::memory_order_acq_rel);
}

// The replica's own thread calls this on the stream that wrote the share, before another share is added to it.
void LocalSum::take_square(BucketState& state, int replica) {
  const at::NoGradGuard no_grad;
  const Nanoseconds begin = now_ns();
  state.squares[replica] = squares_of(share_of(state, {replica}));
  state.squares_ns[replica] = now_ns() - begin;
}

std::vector<double> LocalSum::replica_squares() const {
  check(takes_norms_, "a step with takes_norms");
  std::vector<double> sums(replicas());
  for (const BucketState& state : buckets_) {
    for (int replica = 0; replica < replicas(); ++replica) sums[replica] += state.squares[replica].item<double>();
  }
  return sums;
}

Nanoseconds LocalSum::squares_time() const {
  std::map<std::pair<int, device::Device>, Nanoseconds> of_slot;
  Nanoseconds most = 0;
  for (const BucketState& state : buckets_) {
    for (int replica = 0; replica < replicas(); ++replica) {
      Nanoseconds& sum = of_slot[{replica, stages_[state.stage].devices[replica]}];
      most = std::max(most, sum += state.squares_ns[replica]);
    }
  }
  return most;
}

void LocalSum::add_up(BucketState& state) {
  const at::NoGradGuard no_grad;
  for (const Addition& addition : sequence_.additions) {
    const int from_replica = addition.from.replica, into_replica = addition.into.replica;
    const device::Stream& from = queue_of(state, from_replica);
    const device::Stream& into = queue_of(state, into_replica);
    into.wait(state.ready[into_replica]);
    const device::StreamGuard guard(into);
    const at::Tensor share =
        device::transfer(share_of(state, addition.from), state.ready[from_replica], into, {.from = from, .into = into});
    const at::Tensor sum = share_of(state, addition.into).add_(share);
    if (is_in_tree_ && options_.rounds_to_bf16) device::round_to_bf16(sum);
    state.ready[into_replica] = into.record();
  }
  if (is_in_tree_ && moved_) {
    const device::Stream& from = queue_of(state, moved_->replica);
    const device::Stream& into = queue_of(state, 0);
    const device::StreamGuard guard(into);
    share_of(state, {}).copy_(
        device::transfer(share_of(state, *moved_), state.ready[moved_->replica], into, {.from = from, .into = into}));
    state.ready[0] = into.record();
  }
  for (const Summand& share : sequence_.sums) {
    if (share.replica == 0) continue;
    const device::Stream& first = queue_of(state, 0);
    first.wait(state.ready[share.replica]);
    const device::StreamGuard guard(first);
    state.ready[0] = first.record();
  }
  state.summed = state.ready[0];
}

const device::Stream& LocalSum::queue_of(const BucketState& state, int replica) const {
  return queues_.at(stages_[state.stage].devices[replica]);
}

void LocalSum::wait_for_queues() const {
  for (const auto& [device, queue] : queues_) queue.synchronize();
}

void LocalSum::finish_step() {
  check(open_buckets_.load(std::memory_order_acquire) == 0, "every gradient is reported before the step ends");
  if (replicas() > 1) {
    wait_for_queues();
  } else {
    for (const BucketState& state : buckets_) state.summed.synchronize();
  }
  is_finished_ = true;
}

}  // namespace sluice::ddp
