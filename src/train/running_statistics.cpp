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

void take_in_whole_batch(const Composition& composition, StageId stage) {
  const auto& executor = *composition.executor;
  std::vector<std::vector<nn::BatchNorm2d*>> norms;  // of each replica
  for (int r = 0; r < executor.replicas(); ++r) norms.push_back(executor.stage(ReplicaId{r}, stage).batch_norms());
  const auto device_of = [&](int r) { return executor.stage(ReplicaId{r}, stage).parameters().values().device(); };
  for (std::size_t i = 0; i < norms.front().size(); ++i) {
    nn::BatchStatistics whole;
    for (const auto& of_replica : norms) whole = pooled(whole, moved_to(of_replica[i]->collect(), device_of(0)));
    for (int r = 0; r < executor.replicas(); ++r) norms[r][i]->take_in(moved_to(whole, device_of(r)));
  }
}

void average(const Composition& composition, StageId stage, std::int64_t samples) {
  const auto& executor = *composition.executor;
  const int replicas = executor.replicas();
  const auto statistics_of = [&](int r) { return executor.stage(ReplicaId{r}, stage).parameters().statistics(); };
  const auto shares = pipeline::split_sizes(samples, replicas);
  const auto weight = [&](int r) { return static_cast<double>(shares[r]) / static_cast<double>(samples); };
  at::Tensor merged = statistics_of(0);
  if (merged.numel() == 0 || replicas == 1) return;
  merged.mul_(weight(0));
  for (int r = 1; r < replicas; ++r) merged.add_(statistics_of(r).to(merged.device()), weight(r));
  for (int r = 1; r < replicas; ++r) statistics_of(r).copy_(merged);
}

}  // namespace

void merge_running_statistics(const Composition& composition, nn::BatchNormMode mode, std::int64_t samples) {
  const at::NoGradGuard no_grad;
  for (int s = 0; s < composition.plan.stages(); ++s) {
    if (mode == nn::BatchNormMode::kDeferred) {
      take_in_whole_batch(composition, StageId{s});
    } else {
      average(composition, StageId{s}, samples);
    }
  }
  composition.executor->wait_for_caller();
}

}  // namespace sluice::train
