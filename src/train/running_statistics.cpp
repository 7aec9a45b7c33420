#include "train/running_statistics.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "nn/batch_norm.h"

namespace sluice::train {
namespace {

nn::BatchStatistics moved_to(const nn::BatchStatistics& statistics, c10::Device device) {
  if (statistics.count == 0) return {};
  return {statistics.mean.to(device), statistics.variance.to(device), statistics.count};
}

// Statistics that can be added up: count, count * mean, count * (variance + mean^2); float64.
at::Tensor to_sums(const nn::BatchStatistics& statistics, std::int64_t channels) {
  if (statistics.count == 0) return at::zeros({1 + 2 * channels}, at::kDouble);
  const auto count = static_cast<double>(statistics.count);
  const at::Tensor mean = statistics.mean.to(at::kCPU, at::kDouble),
                   variance = statistics.variance.to(at::kCPU, at::kDouble);
  return at::cat({at::full({1}, count, at::kDouble), mean * count, (variance + mean * mean) * count});
}

nn::BatchStatistics from_sums(const at::Tensor& sums) {
  const std::int64_t channels = (sums.numel() - 1) / 2;
  const double count = sums[0].item<double>();
  if (count == 0) return {};
  const at::Tensor mean = sums.narrow(0, 1, channels) / count;
  return {mean, (sums.narrow(0, 1 + channels, channels) / count - mean * mean).clamp_min(0),
          static_cast<std::int64_t>(count)};
}

// The statistics of each layer over all processes; one operation for all of them.
void add_up_over_processes(const comm::Communicator& peers, std::vector<nn::BatchStatistics>& layers,
                           const std::vector<std::int64_t>& channels) {
  std::vector<at::Tensor> parts;
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    parts.push_back(to_sums(layers[i], channels[i]));
    sizes.push_back(parts.back().numel());
  }
  const at::Tensor sums = at::cat(parts);
  peers.all_reduce(sums).wait();
  const std::vector<at::Tensor> added = sums.split_with_sizes(sizes);
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i] = from_sums(added[i]);
}

void take_in_whole_batch(const Composition& composition, StageId stage) {
  const auto& executor = *composition.executor;
  std::vector<std::vector<nn::BatchNorm2d*>> norms;  // of each replica
  for (int r = 0; r < executor.replicas(); ++r) norms.push_back(executor.stage(ReplicaId{r}, stage).batch_norms());
  const auto device_of = [&](int r) { return executor.stage(ReplicaId{r}, stage).parameters().values().device(); };
  if (norms.front().empty()) return;
  std::vector<nn::BatchStatistics> whole(norms.front().size());
  std::vector<std::int64_t> channels;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    channels.push_back(norms.front()[i]->channels());
    for (const auto& of_replica : norms) whole[i] = pooled(whole[i], moved_to(of_replica[i]->collect(), device_of(0)));
  }
  if (composition.peers) add_up_over_processes(*composition.peers, whole, channels);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (int r = 0; r < executor.replicas(); ++r) norms[r][i]->take_in(moved_to(whole[i], device_of(r)));
  }
}

void average(const Composition& composition, StageId stage, std::int64_t local_samples, std::int64_t global_samples) {
  const auto& executor = *composition.executor;
  const int replicas = executor.replicas();
  const auto statistics_of = [&](int r) { return executor.stage(ReplicaId{r}, stage).parameters().statistics(); };
  const auto shares = pipeline::split_sizes(local_samples, replicas);
  const auto weight = [&](int r) { return static_cast<double>(shares[r]) / static_cast<double>(global_samples); };
  at::Tensor merged = statistics_of(0);
  if (merged.numel() == 0 || (replicas == 1 && !composition.peers)) return;
  merged.mul_(weight(0));
  for (int r = 1; r < replicas; ++r) merged.add_(statistics_of(r).to(merged.device()), weight(r));
  if (composition.peers) {
    const at::Tensor sum = merged.cpu();  // the peers' communicator is one for the CPU
    composition.peers->all_reduce(sum).wait();
    if (!sum.is_same(merged)) merged.copy_(sum);
  }
  for (int r = 1; r < replicas; ++r) statistics_of(r).copy_(merged);
}

}  // namespace

void merge_running_statistics(const Composition& composition, nn::BatchNormMode mode, std::int64_t local_samples,
                              std::int64_t global_samples) {
  const at::NoGradGuard no_grad;
  for (int s = 0; s < composition.plan.stages(); ++s) {
    if (mode == nn::BatchNormMode::kDeferred) {
      take_in_whole_batch(composition, StageId{s});
    } else {
      average(composition, StageId{s}, local_samples, global_samples);
    }
  }
  composition.executor->wait_for_caller();
}

}  // namespace sluice::train
