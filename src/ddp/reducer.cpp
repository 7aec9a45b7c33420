#include "ddp/reducer.h"

#include <utility>

#include <ATen/ATen.h>

namespace sluice::ddp {

Reducer::Reducer(std::vector<comm::SyncedStage> stages, ReducerOptions options, Network network)
    : local_(std::move(stages), options.bucket_bytes,
             [this](int stage, int bucket, const device::Event& summed) {
               if (!between_processes_.empty()) between_processes_[stage]->ready(bucket, summed);
             }),
      small_(network.small) {
  connect(network, options);
}

void Reducer::connect(const Network& network, const ReducerOptions& options) {
  if (small_ && options.record_times) timing_.emplace(small_->rank(), small_->size());
  for (int stage = 0; stage < static_cast<int>(network.of_stage.size()); ++stage) {
    between_processes_.push_back(std::make_unique<OrderedAllReduce>(
        network.of_stage[stage], local_.stages()[stage].devices.front(), local_.buckets_of(stage),
        OrderedAllReduce::Options{.end_time = options.record_times ? comm::EndTime::kNoted : comm::EndTime::kUnknown,
                                  .sends_bf16 = options.sends_bf16}));
  }
}

bool Reducer::begin_step(const comm::StepStart&) {
  for (const auto& stage : between_processes_) stage->begin_step();
  local_.begin_step();
  return false;
}

comm::StepOutcome Reducer::finish_step(const comm::Contribution& local) {
  local_.finish_step();
  Times times;
  for (const auto& stage : between_processes_) times.push_back(stage->wait());
  if (!small_) return {.total = local};
  return total_of(local, times);
}

void Reducer::sum(const at::Tensor& numbers) {
  if (small_) small_->all_reduce(numbers).wait();
}

void Reducer::take_rank_0s(const at::Tensor& numbers) {
  if (small_) small_->broadcast(numbers, /*root=*/0);
}

// A vector of the contribution and a place for every process's batch and times, zero but for our own: the sum over the
// processes is what all have to say.
at::Tensor Reducer::numbers_of(const comm::Contribution& local, const Times& times) const {
  const auto buckets = static_cast<std::int64_t>(timing_ ? local_.buckets() : 0);
  const at::Tensor numbers =
      at::zeros({kCounts + processes() * (1 + buckets * 2)}, at::TensorOptions().dtype(at::kDouble));
  auto* data = numbers.mutable_data_ptr<double>();
  data[0] = static_cast<double>(local.samples);
  data[1] = static_cast<double>(local.targets);
  data[2] = local.loss_sum;
  data[3] = static_cast<double>(local.top1);
  data[4] = static_cast<double>(local.top5);
  data[5] = static_cast<double>(local.stop_votes);
  data[kCounts + rank()] = static_cast<double>(local.batch);
  if (!timing_) return numbers;
  double* own = data + kCounts + processes() + rank() * buckets * 2;
  for (const auto& of_stage : times) {
    for (const SumTimes& sum : of_stage) {
      *own++ = static_cast<double>(sum.begin);
      *own++ = static_cast<double>(sum.end);
    }
  }
  return numbers;
}

void Reducer::tell_times(const double* all_times, const Times& times, comm::StepOutcome& outcome) {
  std::vector<std::vector<SumTimes>> of_process(processes());
  for (auto& of_one : of_process) {
    for (int i = 0; i < local_.buckets(); ++i, all_times += 2)
      of_one.push_back({static_cast<Nanoseconds>(all_times[0]), static_cast<Nanoseconds>(all_times[1])});
  }
  const Readiness readiness = timing_->readiness(of_process);
  outcome.late = readiness.late;
  for (std::size_t stage = 0; stage < times.size(); ++stage) {
    for (int bucket = 0; bucket < static_cast<int>(times[stage].size()); ++bucket) {
      const SumTimes& own = times[stage][bucket];
      const Nanoseconds all_there = readiness.all_there[outcome.buckets.size()];
      outcome.buckets.push_back({local_.stages()[stage].stage, bucket, own.begin, all_there, own.end,
                                 between_processes_[stage]->sent_bytes(bucket)});
    }
  }
}

comm::StepOutcome Reducer::total_of(const comm::Contribution& local, const Times& times) {
  const at::Tensor numbers = numbers_of(local, times);
  sum(numbers);
  const auto* data = numbers.const_data_ptr<double>();
  comm::StepOutcome outcome{.total = {.samples = static_cast<std::int64_t>(data[0]),
                                      .targets = static_cast<std::int64_t>(data[1]),
                                      .loss_sum = data[2],
                                      .top1 = static_cast<std::int64_t>(data[3]),
                                      .top5 = static_cast<std::int64_t>(data[4]),
                                      .stop_votes = static_cast<int>(data[5]),
                                      .batch = local.batch}};
  const auto* batches = data + kCounts;
  for (int process = 0; process < processes(); ++process)
    outcome.batches.push_back(static_cast<std::int64_t>(batches[process]));
  if (timing_) tell_times(batches + processes(), times, outcome);
  return outcome;
}

}  // namespace sluice::ddp
