#include "ddp/reducer.h"

#include <algorithm>
#include <map>
#include <utility>

#include <ATen/ATen.h>

#include "core/check.h"

namespace sluice::ddp {
namespace {

// Sums the norms of the local replicas. A replica without samples has no gradient.
comm::ReplicaNorms norms_of(const std::vector<comm::ReplicaShare>& shares, const std::vector<double>& squares) {
  check(shares.size() == squares.size(), "one square per replica");
  comm::ReplicaNorms norms;
  for (std::size_t replica = 0; replica < shares.size(); ++replica) {
    const auto samples = static_cast<double>(shares[replica].samples);
    const auto targets = static_cast<double>(shares[replica].targets);
    if (samples == 0 || targets == 0) continue;
    ++norms.replicas;
    norms.squares += squares[replica] / targets;
    norms.per_small += targets / samples;
    norms.per_big += targets * targets / samples;
  }
  return norms;
}

}  // namespace

Reducer::Reducer(std::vector<comm::SyncedStage> stages, ReducerOptions options, Network network)
    : local_(std::move(stages), options.bucket_bytes,
             [this](int stage, int bucket, const device::Event& summed) {
               if (!buckets_of_stage_.empty())
                 buckets_of_stage_[stage].line->ready(buckets_of_stage_[stage].first + bucket, summed);
             }),
      small_(network.small) {
  connect(network, options);
}

void Reducer::connect(const Network& network, const ReducerOptions& options) {
  if (small_ && options.record_times) timing_.emplace(small_->rank(), small_->size());
  if (!network.lines.empty()) buckets_of_stage_.resize(local_.stages().size());
  for (const Network::Line& line : network.lines) {
    std::vector<at::Tensor> buckets;
    for (const int stage : line.stages) {
      const std::vector<at::Tensor> own = local_.buckets_of(stage);
      buckets_of_stage_[stage] = {nullptr, static_cast<int>(buckets.size()), static_cast<int>(own.size())};
      buckets.insert(buckets.end(), own.begin(), own.end());
    }
    between_processes_.push_back(std::make_unique<OrderedAllReduce>(
        line.communicator, local_.stages()[line.stages.front()].devices.front(), std::move(buckets),
        OrderedAllReduce::Options{.end_time = options.record_times ? comm::EndTime::kNoted : comm::EndTime::kUnknown,
                                  .sends_bf16 = options.sends_bf16}));
    for (const int stage : line.stages) buckets_of_stage_[stage].line = between_processes_.back().get();
  }
}

bool Reducer::begin_step(const comm::StepStart& start) {
  for (const auto& line : between_processes_) line->begin_step();
  local_.begin_step(start.takes_norms);
  return false;
}

comm::StepOutcome Reducer::finish_step(const comm::Contribution& local) {
  local_.finish_step();
  std::map<const OrderedAllReduce*, std::vector<SumTimes>> of_lines;
  for (const auto& line : between_processes_) of_lines[line.get()] = line->wait();
  Times times;
  for (const StageBuckets& of_stage : buckets_of_stage_) {
    const auto first = of_lines.at(of_stage.line).begin() + of_stage.first;
    times.emplace_back(first, first + of_stage.buckets);
  }
  comm::ReplicaNorms norms;
  const bool has_norms = !local.of_replicas.empty();
  if (has_norms) norms = norms_of(local.of_replicas, local_.replica_squares());
  comm::StepOutcome outcome =
      small_ ? total_of(local, norms, times) : comm::StepOutcome{.total = local, .norms = norms};
  if (has_norms) outcome.norms_time = local_.squares_time();
  return outcome;
}

void Reducer::sum(const at::Tensor& numbers) {
  if (small_) small_->all_reduce(numbers).wait();
}

void Reducer::take_rank_0s(const at::Tensor& numbers) {
  if (small_) small_->broadcast(numbers, /*root=*/0);
}

// Elements of other processes are zero, so that the sum over the processes contains the values of all of them.
at::Tensor Reducer::numbers_of(const comm::Contribution& local, const comm::ReplicaNorms& norms,
                               const Times& times) const {
  const auto buckets = static_cast<std::int64_t>(timing_ ? local_.buckets() : 0);
  const auto scores = std::ssize(local.scores);
  const std::int64_t before_norms = kCounts + scores + processes() * (1 + buckets * 2);
  const bool has_norms = !local.of_replicas.empty();
  const at::Tensor numbers =
      at::zeros({before_norms + (has_norms ? kNorms : 0)}, at::TensorOptions().dtype(at::kDouble));
  auto* data = numbers.mutable_data_ptr<double>();
  data[0] = static_cast<double>(local.samples);
  data[1] = static_cast<double>(local.targets);
  data[2] = local.loss_sum;
  data[3] = static_cast<double>(local.stop_votes);
  std::ranges::copy(local.scores, data + kCounts);
  double* of_processes = data + kCounts + scores;
  of_processes[rank()] = static_cast<double>(local.batch);
  if (has_norms) {
    double* own_norms = data + before_norms;
    own_norms[0] = static_cast<double>(norms.replicas);
    own_norms[1] = norms.squares;
    own_norms[2] = norms.per_small;
    own_norms[3] = norms.per_big;
  }
  if (!timing_) return numbers;
  double* own = of_processes + processes() + rank() * buckets * 2;
  for (const auto& of_stage : times) {
    for (const SumTimes& sum : of_stage) {
      *own++ = static_cast<double>(sum.begin);
      *own++ = static_cast<double>(sum.end);
    }
  }
  return numbers;
}

void Reducer::report_times(const double* all_times, const Times& times, comm::StepOutcome& outcome) {
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
                                 buckets_of_stage_[stage].line->sent_bytes(buckets_of_stage_[stage].first + bucket)});
    }
  }
}

comm::StepOutcome Reducer::total_of(const comm::Contribution& local, const comm::ReplicaNorms& norms,
                                    const Times& times) {
  const at::Tensor numbers = numbers_of(local, norms, times);
  sum(numbers);
  const auto* data = numbers.const_data_ptr<double>();
  comm::StepOutcome outcome{.total = {.samples = static_cast<std::int64_t>(data[0]),
                                      .targets = static_cast<std::int64_t>(data[1]),
                                      .loss_sum = data[2],
                                      .scores = {data + kCounts, data + kCounts + local.scores.size()},
                                      .stop_votes = static_cast<int>(data[3]),
                                      .batch = local.batch}};
  const auto* batches = data + kCounts + local.scores.size();
  for (int process = 0; process < processes(); ++process)
    outcome.batches.push_back(static_cast<std::int64_t>(batches[process]));
  if (timing_) report_times(batches + processes(), times, outcome);
  if (!local.of_replicas.empty()) {
    const double* all = data + numbers.numel() - kNorms;
    outcome.norms = {
        .replicas = static_cast<std::int64_t>(all[0]), .squares = all[1], .per_small = all[2], .per_big = all[3]};
  }
  return outcome;
}

}  // namespace sluice::ddp
