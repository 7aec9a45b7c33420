#include "pipeline/micro_batch.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "core/check.h"
#include "core/parts.h"

namespace sluice::pipeline {

std::vector<std::int64_t> split_sizes(std::int64_t samples, int parts) {
  check(samples >= 0 && parts > 0, "a batch that is split into at least one part");
  std::vector<std::int64_t> sizes;
  for (int part = 0; part < parts; ++part) sizes.push_back(part_range(samples, parts, part).size());
  return sizes;
}

// Divides by tensors, because on GPUs ATen multiplies by the reciprocal of a number, which rounds twice.
at::Tensor numbers_of_pixels(const at::Tensor& bytes, const at::Tensor& scale) {
  const auto of_channels = [&](std::int64_t row) { return scale[row].view({-1, 1, 1}); };
  return bytes.to(scale.scalar_type()).div_(of_channels(0)).sub_(of_channels(1)).div_(of_channels(2));
}

MicroBatch part_of(const MicroBatch& batch, std::int64_t begin, std::int64_t end) {
  const auto rows = [&](Tensors tensors) {
    for (at::Tensor& tensor : tensors) {
      if (tensor.defined()) tensor = tensor.narrow(0, begin, end - begin);
    }
    return tensors;
  };
  MicroBatch part{.inputs = rows(batch.inputs),
                  .targets = rows(batch.targets),
                  .sample_ids = batch.sample_ids.narrow(0, begin, end - begin),
                  .view = batch.view,
                  .view_repeats = batch.view_repeats};
  if (!batch.without_inputs.empty())
    part.without_inputs = {batch.without_inputs.begin() + begin, batch.without_inputs.begin() + end};
  part.pixel_scale = batch.pixel_scale;
  return part;
}

std::vector<MicroBatch> split(const MicroBatch& batch, int parts) {
  std::vector<MicroBatch> micro_batches;
  std::int64_t begin = 0;
  for (const std::int64_t size : split_sizes(batch.samples(), parts)) {
    micro_batches.push_back(part_of(batch, begin, begin + size));
    begin += size;
  }
  return micro_batches;
}

namespace {

// Some kernels round by the addresses of their operands.
void align(Tensors& tensors) {
  constexpr std::uintptr_t kLine = 64;
  for (at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.is_cpu() && reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % kLine != 0)
      tensor = tensor.clone();
  }
}

}  // namespace

std::vector<std::vector<MicroBatch>> deal_out(const MicroBatch& batch, const MicroBatchParts& how, int replicas,
                                              int per_replica) {
  std::vector<std::vector<MicroBatch>> all;
  std::int64_t begin = 0;
  for (int replica = 0; replica < replicas; ++replica) {
    const std::int64_t own = how.of(replica).size();
    check(own <= per_replica, "at least as many micro-batches in the schedule as a replica gets");
    auto& of_replica = all.emplace_back();
    for (int i = 0; i < per_replica; ++i) {
      const std::int64_t end = i < own ? std::min(begin + how.size, batch.samples()) : begin;
      check(i >= own || end > begin, "a sample in each micro-batch that is dealt out");
      align(of_replica.emplace_back(part_of(batch, begin, end)).inputs);
      begin = end;
    }
  }
  check(begin == batch.samples(), "every sample in a micro-batch");
  return all;
}

void trim_padding(MicroBatch& batch, std::size_t mask) {
  if (batch.samples() == 0 || mask >= batch.inputs.size() || !batch.inputs[mask].defined()) return;
  const std::int64_t width = batch.inputs[mask].size(1);
  const at::Tensor used = batch.inputs[mask].ne(0).any(0).nonzero();
  const std::int64_t longest = used.numel() > 0 ? used.max().item<std::int64_t>() + 1 : 1;
  for (Tensors* tensors : {&batch.inputs, &batch.targets}) {
    for (at::Tensor& tensor : *tensors) {
      if (tensor.defined() && tensor.dim() > 1 && tensor.size(1) == width)
        tensor = tensor.narrow(1, 0, longest).contiguous();
    }
  }
}

}  // namespace sluice::pipeline
