#include "engine/pass_sums.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>

#include "core/scores.h"

namespace sluice::engine {

std::vector<at::Tensor> on_cpu(std::vector<at::Tensor> tensors) {
  std::map<std::tuple<int, at::ScalarType, std::vector<std::int64_t>>, std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    if (!tensor.is_cpu())
      alike[{static_cast<int>(tensor.get_device()), tensor.scalar_type(), tensor.sizes().vec()}].push_back(i);
  }
  for (const auto& [key, positions] : alike) {
    std::vector<at::Tensor> of_device;
    for (const std::size_t position : positions) of_device.push_back(tensors[position]);
    const std::vector<at::Tensor> copies = at::stack(of_device).cpu().unbind();
    for (std::size_t i = 0; i < positions.size(); ++i) tensors[positions[i]] = copies[i];
  }
  return tensors;
}

namespace {

std::vector<at::Tensor> read(const pipeline::PassResult& result, at::Tensor pipeline::MicroBatchResult::*what) {
  std::vector<at::Tensor> tensors;
  for (const auto& of_replica : result.micro_batches) {
    for (const auto& micro_batch : of_replica) {
      if ((micro_batch.*what).defined()) tensors.push_back(micro_batch.*what);
    }
  }
  return on_cpu(std::move(tensors));
}

}  // namespace

std::vector<comm::ReplicaShare> shares_run(const pipeline::PassResult& result, const MicroBatches& micro_batches,
                                           const task::Task& task) {
  std::vector<comm::ReplicaShare> shares(micro_batches.size());
  for (std::size_t r = 0; r < micro_batches.size(); ++r) {
    for (std::size_t m = 0; m < micro_batches[r].size(); ++m) {
      if (!result.micro_batches[r][m].has_run) continue;
      shares[r].samples += micro_batches[r][m].samples();
      shares[r].targets += task.count_targets(micro_batches[r][m].targets);
    }
  }
  return shares;
}

double sum_of_losses(const pipeline::PassResult& result) {
  double sum = 0;
  for (const at::Tensor& loss : read(result, &pipeline::MicroBatchResult::loss)) sum += loss.item<double>();
  return sum;
}

std::vector<double> sum_of_scores(const pipeline::PassResult& result, const task::Task& task) {
  std::vector<double> sums = task.no_sums();
  for (const at::Tensor& score : read(result, &pipeline::MicroBatchResult::score)) add_to(sums, task.sums_of(score));
  return sums;
}

std::vector<std::vector<double>> numbers_of_micro_batches(const pipeline::PassResult& result, const task::Task& task,
                                                          bool counts_scores) {
  std::vector<std::vector<double>> numbers;
  for (const at::Tensor& loss : read(result, &pipeline::MicroBatchResult::loss))
    numbers.push_back({loss.item<double>()});
  if (!counts_scores) return numbers;
  std::size_t at = 0;
  for (const at::Tensor& score : read(result, &pipeline::MicroBatchResult::score)) {
    const std::vector<double> sums = task.sums_of(score);
    numbers.at(at).insert(numbers.at(at).end(), sums.begin(), sums.end());
    ++at;
  }
  return numbers;
}

at::Tensor joined_logits(const std::vector<at::Tensor>& parts) {
  if (parts.empty()) return {};
  std::int64_t width = 0;
  for (const at::Tensor& part : parts) width = std::max(width, part.dim() > 1 ? part.size(1) : 0);
  std::vector<at::Tensor> alike;
  for (const at::Tensor& part : parts) {
    if (part.dim() < 2 || part.size(1) == width) {
      alike.push_back(part);
      continue;
    }
    std::vector<std::int64_t> pad(2 * (static_cast<std::size_t>(part.dim()) - 1));
    pad.back() = width - part.size(1);
    alike.push_back(at::constant_pad_nd(part, pad));
  }
  return at::cat(alike);
}

at::Tensor logits_in_order(const pipeline::PassResult& result) {
  return joined_logits(read(result, &pipeline::MicroBatchResult::logits));
}

}  // namespace sluice::engine
