// The pass's work before its actions: copies from the host and the frozen layers.
#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "core/check.h"
#include "pipeline/pass_thread.h"

namespace sluice::pipeline {
namespace {

const Tensors& inputs_of(const MicroBatch& samples) {
  check(std::ranges::find(samples.without_inputs, true) == samples.without_inputs.end(),
        "inputs of all samples in a pass without a feature source");
  return samples.inputs;
}

// In the order in memory that our layers give: from cached rows, later layers would sum in another order.
Tensors ordered(Tensors features) {
  for (at::Tensor& tensor : features) {
    if (tensor.defined())
      tensor = tensor.contiguous(tensor.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
  }
  return features;
}

at::Tensor from_host(const at::Tensor& tensor, const SlotStreams& streams) {
  static const device::Stream host = device::Stream::make({});
  return device::transfer(tensor, {}, streams.compute(), {.from = host, .into = streams.load()});
}

}  // namespace

Tensors Pass::load(DeviceThread& thread, const Action& action, Tensors tensors) {
  const StreamSpanScope span(thread.spans, Phase::kHostToDevice, action.stage, action.micro_batch);
  for (at::Tensor& tensor : tensors) {
    tensor = from_host(tensor, thread.streams);
    thread.keep(tensor);
  }
  return tensors;
}

at::Tensor Pass::sample_ids_of(DeviceThread& thread, MicroBatchId micro_batch) {
  const at::Tensor& ids = micro_batch_of(thread.replica(), micro_batch).sample_ids;
  if (!request_.context.training) return ids;
  at::Tensor& own = thread.sample_ids[index(micro_batch)];
  if (!own.defined()) {
    own = from_host(ids, thread.streams);
    thread.keep(own);
    own = thread.runner.sample_ids(micro_batch, own);
  }
  return own;
}

Tensors Pass::load_inputs(DeviceThread& thread, const Action& action, const MicroBatch& samples) {
  return load_numbers(thread, action, inputs_of(samples), samples.pixel_scale);
}

Tensors Pass::load_numbers(DeviceThread& thread, const Action& action, const Tensors& inputs,
                           const at::Tensor& pixel_scale) {
  Tensors own = load(thread, action, inputs);
  if (!pixel_scale.defined()) return own;
  const at::Tensor own_scale = load(thread, action, {pixel_scale}).front();
  const StreamSpanScope span(thread.spans, Phase::kHostToDevice, action.stage, action.micro_batch);
  own.front() = numbers_of_pixels(own.front(), own_scale);
  return own;
}

void Pass::run_prefix(DeviceThread& thread) {
  if (prefix_shares_.empty()) return;
  thread.runs_prefix = true;
  for (const PrefixShare& share : prefix_shares_[index(thread.replica())]) {
    if (share.device != thread.slot.device) continue;
    const Action action{.op = Op::kForward, .stage = kNoStage, .micro_batch = share.micro_batch};
    const MicroBatch samples = part_of(micro_batch_of(thread.replica(), share.micro_batch), share.begin, share.end);
    Tensors features = request_.features ? run_missing_features(thread, action, samples)
                                         : run_frozen(thread, action, samples, inputs_of(samples)).tensors;
    send(thread, {features_[thread.index], Border::kActivations}, action, std::move(features));
  }
  thread.prefix_weights.clear();
  thread.runs_prefix = false;
}

FrozenPrefix::Features Pass::run_frozen(DeviceThread& thread, const Action& action, const MicroBatch& samples,
                                        const Tensors& inputs) {
  const Tensors own = load_numbers(thread, action, inputs, samples.pixel_scale);
  const StreamSpanScope span(thread.spans, Phase::kForward, kNoStage, action.micro_batch);
  return grid_->prefixes[thread.index]->forward(own, &thread.prefix_weights);
}

// The rounding of a sample's features then does not depend on which others are missing.
FrozenPrefix::Features Pass::run_frozen_one_by_one(DeviceThread& thread, const Action& action,
                                                   const MicroBatch& samples, const Tensors& inputs) {
  std::vector<FrozenPrefix::Features> made;
  for (std::int64_t i = 0; i < inputs.front().size(0); ++i) {
    Tensors one = inputs;
    for (at::Tensor& input : one)
      if (input.defined()) input = input.narrow(0, i, 1).clone();  // aligned: some kernels round by addresses
    made.push_back(run_frozen(thread, action, samples, one));
  }
  FrozenPrefix::Features all{.tensors = made.front().tensors, .sources = made.front().sources};
  for (std::size_t t = 0; t < all.tensors.size(); ++t) {
    Tensors rows;
    for (const FrozenPrefix::Features& one : made) rows.push_back(one.tensors[t]);
    if (rows.front().defined()) all.tensors[t] = at::cat(rows);
  }
  return all;
}

Tensors Pass::run_missing_features(DeviceThread& thread, const Action& action, const MicroBatch& samples) {
  FeatureSource::Found found;
  {
    const StreamSpanScope span(thread.spans, Phase::kHostToDevice, kNoStage, action.micro_batch);
    found = request_.features->find(samples);
  }
  if (found.missing.empty()) return load(thread, action, ordered(std::move(found.rows)));
  const FrozenPrefix::Features made = request_.splits_micro_batches
                                          ? run_frozen(thread, action, samples, found.inputs)
                                          : run_frozen_one_by_one(thread, action, samples, found.inputs);
  Tensors all;
  {
    const StreamSpanScope span(thread.spans, Phase::kHostToDevice, kNoStage, action.micro_batch);
    all = request_.features->complete(samples, found, made);
  }
  return load(thread, action, ordered(std::move(all)));
}

Tensors Pass::frozen_features(DeviceThread& thread, const Action& action) {
  std::vector<Tensors> parts;
  for (const PrefixShare& share : prefix_shares_[index(thread.replica())]) {
    if (share.micro_batch != action.micro_batch) continue;
    auto& mailbox = features_[grid_->slot(thread.replica(), share.device)];
    parts.push_back(receive(thread, {mailbox, Border::kActivations}, action));
  }
  if (parts.size() == 1) return parts.front();
  const StreamSpanScope span(thread.spans, Phase::kReceive, action.stage, action.micro_batch);
  Tensors all = parts.front();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].defined()) continue;
    Tensors own;
    for (const Tensors& part : parts) own.push_back(part[i]);
    all[i] = at::cat(own);
  }
  return all;
}

}  // namespace sluice::pipeline
