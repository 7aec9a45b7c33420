// The frozen layers' part of a pass, and what comes from the host.
#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "core/check.h"
#include "pipeline/pass_worker.h"

namespace sluice::pipeline {
namespace {

// Of a sample without inputs only its features are known.
const at::Tensor& inputs_of(const MicroBatch& samples) {
  check(std::ranges::find(samples.without_inputs, true) == samples.without_inputs.end(),
        "samples come without inputs to a pass that has nobody to ask for their features");
  return samples.inputs;
}

at::Tensor from_host(const at::Tensor& tensor, const SlotStreams& streams) {
  static const device::Stream host = device::Stream::make({});
  return device::transfer(tensor, {}, streams.compute(), {.from = host, .into = streams.load()});
}

}  // namespace

at::Tensor Pass::load(Worker& worker, const Action& action, const at::Tensor& samples) {
  const StreamSpanScope span(worker.spans, Phase::kHostToDevice, action.stage, action.micro_batch);
  const at::Tensor own = from_host(samples, worker.streams);
  worker.keep(own);
  return own;
}

at::Tensor Pass::sample_ids_of(Worker& worker, MicroBatchId micro_batch) {
  const at::Tensor& ids = micro_batch_of(worker.replica(), micro_batch).sample_ids;
  if (!request_.context.training) return ids;
  at::Tensor& own = worker.sample_ids[index(micro_batch)];
  if (!own.defined()) {
    own = from_host(ids, worker.streams);
    worker.keep(own);
    if (worker.graphs != nullptr) own = worker.graphs->keep_sample_ids(micro_batch, own);
  }
  return own;
}

at::Tensor Pass::load_inputs(Worker& worker, const Action& action, const MicroBatch& samples) {
  return load_numbers(worker, action, inputs_of(samples), samples.pixel_scale);
}

at::Tensor Pass::load_numbers(Worker& worker, const Action& action, const at::Tensor& inputs,
                              const at::Tensor& pixel_scale) {
  const at::Tensor own = load(worker, action, inputs);
  if (!pixel_scale.defined()) return own;
  const at::Tensor own_scale = load(worker, action, pixel_scale);
  const StreamSpanScope span(worker.spans, Phase::kHostToDevice, action.stage, action.micro_batch);
  return numbers_of_pixels(own, own_scale);
}

void Pass::run_prefix(Worker& worker) {
  if (prefix_shares_.empty()) return;
  worker.runs_prefix = true;
  for (const PrefixShare& share : prefix_shares_[index(worker.replica())]) {
    if (share.device != worker.slot.device) continue;
    const Action action{.op = Op::kForward, .stage = kNoStage, .micro_batch = share.micro_batch};
    const MicroBatch samples = part_of(micro_batch_of(worker.replica(), share.micro_batch), share.begin, share.end);
    const at::Tensor features = request_.features ? run_what_is_new(worker, action, samples)
                                                  : run_frozen(worker, action, samples, inputs_of(samples));
    send(worker, {features_[worker.index], Border::kActivations}, action, features);
  }
  worker.of_prefix.clear();
  worker.runs_prefix = false;
}

at::Tensor Pass::run_frozen(Worker& worker, const Action& action, const MicroBatch& samples, const at::Tensor& inputs) {
  const at::Tensor own = load_numbers(worker, action, inputs, samples.pixel_scale);
  const StreamSpanScope span(worker.spans, Phase::kForward, kNoStage, action.micro_batch);
  return grid_->prefixes[worker.index]->forward(own, &worker.of_prefix);
}

at::Tensor Pass::run_what_is_new(Worker& worker, const Action& action, const MicroBatch& samples) {
  FeatureSource::Found found;
  {
    const StreamSpanScope span(worker.spans, Phase::kHostToDevice, kNoStage, action.micro_batch);
    found = request_.features->find(samples);
  }
  if (found.missing.empty()) return load(worker, action, found.rows);
  const at::Tensor made = run_frozen(worker, action, samples, found.inputs);
  at::Tensor all;
  {
    const StreamSpanScope span(worker.spans, Phase::kHostToDevice, kNoStage, action.micro_batch);
    all = request_.features->complete(samples, found, made);
  }
  return load(worker, action, all);
}

// Of a micro-batch, in the order of its samples.
at::Tensor Pass::frozen_features(Worker& worker, const Action& action) {
  std::vector<at::Tensor> parts;
  for (const PrefixShare& share : prefix_shares_[index(worker.replica())]) {
    if (share.micro_batch != action.micro_batch) continue;
    auto& of_share = features_[grid_->slot(worker.replica(), share.device)];
    parts.push_back(receive(worker, {of_share, Border::kActivations}, action));
  }
  if (parts.size() == 1) return parts.front();
  const StreamSpanScope span(worker.spans, Phase::kReceive, action.stage, action.micro_batch);
  return at::cat(parts);
}

}  // namespace sluice::pipeline
