#include "engine/running_statistics.h"

#include <numeric>
#include <utility>

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

// [replica]
std::vector<std::vector<nn::BatchNorm2d*>> batch_norms(const pipeline::Executor& executor, StageId stage) {
  std::vector<std::vector<nn::BatchNorm2d*>> norms;
  for (int r = 0; r < executor.replicas(); ++r) norms.push_back(executor.stage(ReplicaId{r}, stage).batch_norms());
  return norms;
}

nn::BatchStatistics collect_whole(nn::BatchNorm2d& norm) {
  const std::vector<nn::BatchNorm2d::Collected> collected = norm.collect();
  return collected.empty() ? nn::BatchStatistics{} : collected.front().statistics;
}

void take_in_whole_batch(const Composition& composition, StageId stage) {
  const auto& executor = *composition.executor;
  const auto norms = batch_norms(executor, stage);
  const auto device_of = [&](int r) { return executor.stage(ReplicaId{r}, stage).parameters().values().device(); };
  if (norms.front().empty()) return;
  std::vector<nn::BatchStatistics> whole(norms.front().size());
  std::vector<std::int64_t> channels;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    channels.push_back(norms.front()[i]->channels());
    for (const auto& of_replica : norms)
      whole[i] = pooled(whole[i], moved_to(collect_whole(*of_replica[i]), device_of(0)));
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

void copy_counts(const Composition& composition, const std::vector<at::Tensor>& counts, int replica) {
  const std::vector<at::Tensor> own = batch_counts(composition, replica);
  for (std::size_t i = 0; i < counts.size(); ++i) own[i].copy_(counts[i]);
}

// Adds up samples and sums. Counts become the largest of all processes.
void share_over_processes(const Composition& composition, std::int64_t& samples, const std::vector<at::Tensor>& sums,
                          const std::vector<at::Tensor>& counts) {
  comm::ReplicaSync& sync = *composition.sync;
  std::vector<at::Tensor> parts{at::full({1}, samples, at::kDouble)};
  const auto add = [&](const at::Tensor& tensor) { parts.push_back(tensor.to(at::kCPU, at::kDouble).flatten()); };
  for (const at::Tensor& sum : sums) add(sum);
  for (const at::Tensor& count : counts) {
    const at::Tensor of_all = at::zeros({composition.processes(), count.numel()}, at::kDouble);
    of_all[sync.rank()].copy_(count.flatten());
    add(of_all);
  }
  const at::Tensor all = at::cat(parts);
  sync.sum(all);
  samples = all[0].item<std::int64_t>();
  std::int64_t begin = 1;
  const auto take = [&](std::int64_t numbers) { return all.narrow(0, std::exchange(begin, begin + numbers), numbers); };
  for (const at::Tensor& sum : sums) sum.copy_(take(sum.numel()).view(sum.sizes()));
  for (const at::Tensor& count : counts) {
    const at::Tensor of_all = take(composition.processes() * count.numel()).view({-1, count.numel()});
    count.copy_(of_all.amax(0).view(count.sizes()));
  }
}

// Weighted by samples. The number of batches is that of the replica that took in most.
void average(const Composition& composition, const std::vector<std::int64_t>& samples) {
  const auto& executor = *composition.executor;
  const std::vector<at::Tensor> counts = batch_counts(composition, 0);
  const bool is_alone = executor.replicas() == 1 && composition.processes() == 1;
  if (counts.empty() || is_alone) return;
  const std::vector<at::Tensor> sums = local_sums(composition, samples);
  auto all_samples = std::accumulate(samples.begin(), samples.end(), std::int64_t{0});
  for (int r = 1; r < executor.replicas(); ++r) {
    const std::vector<at::Tensor> others = batch_counts(composition, r);
    for (std::size_t i = 0; i < counts.size(); ++i)
      counts[i].copy_(at::maximum(counts[i], others[i].to(counts[i].device())));
  }
  if (composition.processes() > 1) share_over_processes(composition, all_samples, sums, counts);
  if (all_samples == 0) return;  // no replica has taken in a batch
  for (int r = 0; r < executor.replicas(); ++r) {
    for (int s = 0; s < executor.stages(); ++s) {
      const at::Tensor own = executor.stage(ReplicaId{r}, StageId{s}).parameters().running_statistics();
      own.copy_(sums[s]).div_(static_cast<double>(all_samples));
    }
    if (r > 0) copy_counts(composition, counts, r);
  }
}

void copy_to_other_replicas(const Composition& composition) {
  const auto& executor = *composition.executor;
  const std::vector<at::Tensor> counts = batch_counts(composition, 0);
  for (int r = 1; r < executor.replicas(); ++r) {
    for (int s = 0; s < executor.stages(); ++s) {
      const auto statistics = [&](int replica) {
        return executor.stage(ReplicaId{replica}, StageId{s}).parameters().running_statistics();
      };
      statistics(r).copy_(statistics(0));
    }
    copy_counts(composition, counts, r);
  }
}

// [micro-batch, 1 + 2 channels] float64: count, mean and variance of each micro-batch of this process.
at::Tensor numbered_statistics(const std::vector<std::vector<nn::BatchNorm2d*>>& norms, std::size_t norm,
                               std::int64_t micro_batches) {
  const std::int64_t channels = norms.front()[norm]->channels();
  at::Tensor all = at::zeros({micro_batches, 1 + 2 * channels}, at::kDouble);
  for (const auto& of_replica : norms) {
    for (const auto& [micro_batch, statistics] : of_replica[norm]->collect()) {
      const at::Tensor row = all[micro_batch];
      row[0].fill_(statistics.count);
      row.narrow(0, 1, channels).copy_(statistics.mean);
      row.narrow(0, 1 + channels, channels).copy_(statistics.variance);
    }
  }
  return all;
}

void take_in_numbered(nn::BatchNorm2d& norm, const at::Tensor& all, nn::BatchNormMode mode, c10::Device device) {
  const std::int64_t channels = norm.channels();
  nn::BatchStatistics whole;
  for (std::int64_t m = 0; m < all.size(0); ++m) {
    const nn::BatchStatistics own{all[m].narrow(0, 1, channels), all[m].narrow(0, 1 + channels, channels),
                                  all[m][0].item<std::int64_t>()};
    if (mode == nn::BatchNormMode::kDeferred) {
      whole = pooled(whole, own);
    } else {
      norm.take_in(moved_to(own, device));
    }
  }
  norm.take_in(moved_to(whole, device));
}

// Every process takes in the statistics of all micro-batches in their order.
void take_in_by_number(const Composition& composition, nn::BatchNormMode mode, std::int64_t micro_batches) {
  const auto& executor = *composition.executor;
  std::vector<at::Tensor> parts;
  std::vector<std::pair<StageId, nn::BatchNorm2d*>> takers;
  for (int s = 0; s < executor.stages(); ++s) {
    const auto norms = batch_norms(executor, StageId{s});
    for (std::size_t i = 0; i < norms.front().size(); ++i) {
      parts.push_back(numbered_statistics(norms, i, micro_batches));
      takers.emplace_back(StageId{s}, norms.front()[i]);
    }
  }
  if (parts.empty()) return;
  std::vector<std::int64_t> widths;
  for (const at::Tensor& part : parts) widths.push_back(part.size(1));
  const at::Tensor all = at::cat(parts, 1);
  if (composition.processes() > 1) composition.sync->sum(all);  // the others have zeros in these rows
  const std::vector<at::Tensor> of_norms = all.split_with_sizes(widths, 1);
  for (std::size_t i = 0; i < takers.size(); ++i) {
    const auto [stage, norm] = takers[i];
    take_in_numbered(*norm, of_norms[i], mode,
                     executor.stage(ReplicaId{0}, stage).parameters().running_statistics().device());
  }
  copy_to_other_replicas(composition);
}

}  // namespace

void merge_running_statistics(const Composition& composition, nn::BatchNormMode mode,
                              const std::vector<std::int64_t>& samples, std::int64_t micro_batches) {
  const at::NoGradGuard no_grad;
  if (micro_batches > 0) {
    take_in_by_number(composition, mode, micro_batches);
  } else if (mode == nn::BatchNormMode::kDeferred) {
    for (int s = 0; s < composition.plan.stages(); ++s) take_in_whole_batch(composition, StageId{s});
  } else if (mode == nn::BatchNormMode::kMicro) {
    average(composition, samples);
  }
  composition.executor->wait_for_caller();
}

}  // namespace sluice::engine
