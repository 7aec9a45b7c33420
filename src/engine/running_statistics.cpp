#include "engine/running_statistics.h"

#include <numeric>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "nn/batch_norm.h"

namespace sluice::engine {
namespace {

nn::BatchStatistics moved_to(const nn::BatchStatistics& statistics, c10::Device device) {
  if (statistics.count == 0) return {};
  return {statistics.mean.to(device), statistics.variance.to(device), statistics.count};
}

void add_up_over_processes(comm::ReplicaSync& sync, std::vector<nn::BatchStatistics>& layers,
                           const std::vector<std::int64_t>& channels) {
  std::vector<at::Tensor> parts;
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    parts.push_back(nn::to_sums(layers[i], channels[i]));
    sizes.push_back(parts.back().numel());
  }
  const at::Tensor sums = at::cat(parts);
  sync.sum(sums);
  const std::vector<at::Tensor> added = sums.split_with_sizes(sizes);
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i] = nn::from_sums(added[i]);
}

void take_in_whole_batch(const Composition& composition, StageId stage) {
  const auto& executor = *composition.executor;
  std::vector<std::vector<nn::BatchNorm2d*>> norms;  // [replica]
  for (int r = 0; r < executor.replicas(); ++r) norms.push_back(executor.stage(ReplicaId{r}, stage).batch_norms());
  const auto device_of = [&](int r) { return executor.stage(ReplicaId{r}, stage).parameters().values().device(); };
  if (norms.front().empty()) return;
  std::vector<nn::BatchStatistics> whole(norms.front().size());
  std::vector<std::int64_t> channels;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    channels.push_back(norms.front()[i]->channels());
    for (const auto& of_replica : norms) whole[i] = pooled(whole[i], moved_to(of_replica[i]->collect(), device_of(0)));
  }
  if (composition.processes() > 1) add_up_over_processes(*composition.sync, whole, channels);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (int r = 0; r < executor.replicas(); ++r) norms[r][i]->take_in(moved_to(whole[i], device_of(r)));
  }
}

// [stage]: the sum over the replicas of this process, weighted by samples, on the device of replica 0.
std::vector<at::Tensor> local_sums(const Composition& composition, const std::vector<std::int64_t>& samples) {
  const auto& executor = *composition.executor;
  std::vector<at::Tensor> sums;
  for (int s = 0; s < executor.stages(); ++s) {
    const auto statistics = [&](int r) {
      return executor.stage(ReplicaId{r}, StageId{s}).parameters().running_statistics();
    };
    at::Tensor& sum = sums.emplace_back(statistics(0) * static_cast<double>(samples[0]));
    for (int r = 1; r < executor.replicas(); ++r)
      sum.add_(statistics(r).to(sum.device()), static_cast<double>(samples[r]));
  }
  return sums;
}

// The integer buffers of a replica: how many batches its layers have taken in.
std::vector<at::Tensor> batch_counts(const Composition& composition, int replica) {
  std::vector<at::Tensor> counts;
  for (int s = 0; s < composition.plan.stages(); ++s) {
    for (const nn::Buffer* buffer :
         composition.executor->stage(ReplicaId{replica}, StageId{s}).parameters().buffers()) {
      if (!buffer->value.is_floating_point()) counts.push_back(buffer->value);
    }
  }
  return counts;
}

void share_over_processes(comm::ReplicaSync& sync, std::int64_t& samples, const std::vector<at::Tensor>& sums,
                          const std::vector<at::Tensor>& counts) {
  std::vector<at::Tensor> parts{at::full({1}, samples, at::kDouble)};
  const auto add = [&](const at::Tensor& tensor) { parts.push_back(tensor.to(at::kCPU, at::kDouble).flatten()); };
  for (const at::Tensor& sum : sums) add(sum);
  for (const at::Tensor& count : counts) add(sync.rank() == 0 ? count : at::zeros_like(count));
  const at::Tensor all = at::cat(parts);
  sync.sum(all);
  samples = all[0].item<std::int64_t>();
  std::int64_t begin = 1;
  const auto take = [&](const at::Tensor& tensor) {
    tensor.copy_(all.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  };
  for (const at::Tensor& sum : sums) take(sum);
  for (const at::Tensor& count : counts) take(count);
}

// Weighted by samples. The first replica has the largest share of a batch, so its number of batches counts.
void average(const Composition& composition, const std::vector<std::int64_t>& samples) {
  const auto& executor = *composition.executor;
  const std::vector<at::Tensor> counts = batch_counts(composition, 0);
  const bool is_alone = executor.replicas() == 1 && composition.processes() == 1;
  if (counts.empty() || is_alone) return;
  const std::vector<at::Tensor> sums = local_sums(composition, samples);
  auto all_samples = std::accumulate(samples.begin(), samples.end(), std::int64_t{0});
  if (composition.processes() > 1) share_over_processes(*composition.sync, all_samples, sums, counts);
  if (all_samples == 0) return;  // no replica has taken in a batch
  for (int r = 0; r < executor.replicas(); ++r) {
    for (int s = 0; s < executor.stages(); ++s) {
      const at::Tensor own = executor.stage(ReplicaId{r}, StageId{s}).parameters().running_statistics();
      own.copy_(sums[s]).div_(static_cast<double>(all_samples));
    }
    if (r == 0) continue;
    const std::vector<at::Tensor> others = batch_counts(composition, r);
    for (std::size_t i = 0; i < counts.size(); ++i) others[i].copy_(counts[i]);
  }
}

}  // namespace

void merge_running_statistics(const Composition& composition, nn::BatchNormMode mode,
                              const std::vector<std::int64_t>& samples) {
  const at::NoGradGuard no_grad;
  if (mode == nn::BatchNormMode::kDeferred) {
    for (int s = 0; s < composition.plan.stages(); ++s) take_in_whole_batch(composition, StageId{s});
  } else if (mode == nn::BatchNormMode::kMicro) {
    average(composition, samples);
  }
  composition.executor->wait_for_caller();
}

}  // namespace sluice::engine
