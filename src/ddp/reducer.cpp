#include "ddp/reducer.h"

#include <algorithm>
#include <map>
#include <utility>

#include <ATen/ATen.h>

#include "core/check.h"
#include "core/scores.h"
#include "core/sum_tree.h"

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

// The sum of two numbers has the same bits in either order.
bool is_plain_sum(const std::vector<std::vector<TreeNode>>& nodes) {
  return nodes.size() == 2 && nodes[0].size() == 1 && nodes[1].size() == 1;
}

}  // namespace

Reducer::Reducer(std::vector<comm::SyncedStage> stages, ReducerOptions options, Network network)
    : options_(options),
      local_(std::move(stages),
             {.bucket_bytes = options.bucket_bytes,
              .rank = network.small ? network.small->rank() : 0,
              .rounds_to_bf16 = options.sends_bf16},
             [this](int stage, int bucket, const device::Event& summed) { on_summed(stage, bucket, summed); }),
      small_(network.small) {
  connect(std::move(network));
}

void Reducer::connect(Network network) {
  if (small_ && options_.record_times) timing_.emplace(small_->rank(), small_->size());
  if (!network.lines.empty()) buckets_of_stage_.resize(local_.stages().size());
  for (Network::Line& of_network : network.lines) {
    LineSums& line =
        *between_processes_.emplace_back(std::make_unique<LineSums>(LineSums{.network = std::move(of_network)}));
    for (const int stage : line.network.stages) {
      const std::vector<at::Tensor> own = local_.buckets_of(stage);
      buckets_of_stage_[stage] = {&line, static_cast<int>(line.buckets.size()), static_cast<int>(own.size())};
      line.buckets.insert(line.buckets.end(), own.begin(), own.end());
    }
    line.ordered = std::make_unique<OrderedAllReduce>(
        line.network.communicator, local_.stages()[line.network.stages.front()].devices.front(), line.buckets,
        OrderedAllReduce::Options{.end_time = options_.record_times ? comm::EndTime::kNoted : comm::EndTime::kUnknown,
                                  .sends_bf16 = options_.sends_bf16});
  }
}

bool Reducer::begin_step(const comm::StepStart& start) {
  micro_batches_ = start.micro_batches;
  parts_ = start.parts;
  exchanges_ = false;
  if (micro_batches_ > 0 && processes() > 1) begin_tree(micro_batches_);
  if (!exchanges_) {
    for (const auto& line : between_processes_) line->ordered->begin_step();
  }
  local_.begin_step(start);
  return false;
}

std::int64_t Reducer::first_micro_batch(int process) const {
  const auto replicas = std::ssize(local_.stages().front().gradients);
  return parts_.begin(micro_batches_, process * replicas);
}

void Reducer::begin_tree(std::int64_t micro_batches) {
  std::vector<std::vector<TreeNode>> nodes;
  for (int process = 0; process < processes(); ++process)
    nodes.push_back(nodes_within({first_micro_batch(process), first_micro_batch(process + 1)}, micro_batches));
  exchanges_ = options_.sends_bf16 || !is_plain_sum(nodes);
  for (const auto& line : between_processes_) {
    if (!exchanges_) break;
    check(line->buckets.empty() || !line->buckets.front().is_cuda() || line->network.communicator->by_nccl(),
          "NCCL for GPUs' gradients in a tree");
    if (!line->tree) {
      line->tree = std::make_unique<TreeExchange>(line->network.communicator,
                                                  local_.stages()[line->network.stages.front()].devices.front(),
                                                  line->buckets, options_.sends_bf16);
    }
    line->tree->begin_step(nodes, micro_batches);
  }
}

void Reducer::on_summed(int stage, int bucket, const device::Event& summed) {
  if (buckets_of_stage_.empty()) return;
  const StageBuckets& of_stage = buckets_of_stage_[stage];
  if (exchanges_) {
    of_stage.line->tree->ready(of_stage.first + bucket, summed, local_.sums_of(stage, bucket));
  } else {
    of_stage.line->ordered->ready(of_stage.first + bucket, summed);
  }
}

std::vector<SumTimes> Reducer::wait_for(const LineSums& line) const {
  return exchanges_ ? line.tree->wait() : line.ordered->wait();
}

std::int64_t Reducer::sent_bytes(const StageBuckets& of_stage, int bucket) const {
  const int number = of_stage.first + bucket;
  return exchanges_ ? of_stage.line->tree->sent_bytes(number) : of_stage.line->ordered->sent_bytes(number);
}

comm::StepOutcome Reducer::finish_step(const comm::Contribution& local) {
  local_.finish_step();
  std::map<const LineSums*, std::vector<SumTimes>> of_lines;
  for (const auto& line : between_processes_) of_lines[line.get()] = wait_for(*line);
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
  const std::int64_t before_micro_batches = before_norms + (has_norms ? kNorms : 0);
  const at::Tensor numbers =
      at::zeros({before_micro_batches + micro_batches_ * (1 + scores)}, at::TensorOptions().dtype(at::kDouble));
  auto* data = numbers.mutable_data_ptr<double>();
  data[0] = static_cast<double>(local.samples);
  data[1] = static_cast<double>(local.targets);
  data[2] = local.loss_sum;
  data[3] = static_cast<double>(local.stop_votes);
  data[4] = static_cast<double>(local.regroup_votes);
  data[5] = static_cast<double>(local.event_votes);
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
  if (micro_batches_ > 0) {
    double* row = data + before_micro_batches + (1 + scores) * first_micro_batch(rank());
    for (const std::vector<double>& own : local.of_micro_batches) row = std::ranges::copy(own, row).out;
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
                                 sent_bytes(buckets_of_stage_[stage], bucket)});
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
                                      .regroup_votes = static_cast<int>(data[4]),
                                      .event_votes = static_cast<int>(data[5]),
                                      .batch = local.batch}};
  const auto* batches = data + kCounts + local.scores.size();
  for (int process = 0; process < processes(); ++process)
    outcome.batches.push_back(static_cast<std::int64_t>(batches[process]));
  if (timing_) report_times(batches + processes(), times, outcome);
  const double* all_micro_batches = data + numbers.numel() - micro_batches_ * (1 + std::ssize(local.scores));
  if (micro_batches_ > 0) {
    ScoreSums sums = sum_in_order(all_micro_batches, micro_batches_, local.scores.size());
    outcome.total.loss_sum = sums.loss_sum;
    outcome.total.scores = std::move(sums.sums);
  }
  if (!local.of_replicas.empty()) {
    const double* all = all_micro_batches - kNorms;
    outcome.norms = {
        .replicas = static_cast<std::int64_t>(all[0]), .squares = all[1], .per_small = all[2], .per_big = all[3]};
  }
  return outcome;
}

}  // namespace sluice::ddp
