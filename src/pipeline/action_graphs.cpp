#include "pipeline/action_graphs.h"

#include <exception>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "nn/flops.h"
#include "pipeline/failure.h"

namespace sluice::pipeline {
namespace {

[[noreturn]] void refuse_recording() {
  const Error what = describe_failure(std::current_exception(), "its work cannot be recorded as a CUDA graph");
  if (what.exit_code() != ExitCode::kBug) throw;  // for example, out of memory
  throw ConfigError(what.what(), "; set device.cuda_graphs = false");
}

device::GraphWork counted_apart(device::GraphWork work, std::shared_ptr<FlopCount> flops) {
  return [work = std::move(work), flops = std::move(flops)](const Tensors& inputs) {
    const FlopCount before = nn::take_flops();
    Tensors outputs = work(inputs);
    *flops = nn::take_flops();
    nn::add_flops(before);
    return outputs;
  };
}

void copy_in(const Tensors& inputs, const Tensors& fixed) {
  check(inputs.size() == fixed.size(), "as many inputs as when the action was recorded");
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check(inputs[i].defined() == fixed[i].defined(), "an input that is defined in every pass or in none");
    if (!inputs[i].defined()) continue;
    check(inputs[i].sizes() == fixed[i].sizes() && inputs[i].scalar_type() == fixed[i].scalar_type(),
          "inputs with the recorded shapes and types");
    at::Tensor(fixed[i]).copy_(inputs[i]);
  }
}

}  // namespace

void ActionGraphs::begin_pass(const PassValues& values) {
  check(next_ == recorded_.size(), "a previous pass that ran all recorded actions");
  const at::NoGradGuard no_grad;
  records_ = recorded_.empty();
  next_ = 0;
  sample_ids_.resize(values.micro_batches);
  if (records_) {  // allocated by the stream that writes them
    const auto options = at::TensorOptions().device(device::torch_device(device_));
    step_ = at::empty({1}, options.dtype(at::kLong));
    gradient_scale_ = at::empty({1}, options.dtype(at::kDouble));
  }
  step_.fill_(values.step);
  gradient_scale_.fill_(values.gradient_scale);
}

at::Tensor ActionGraphs::sample_ids(MicroBatchId micro_batch, const at::Tensor& ids) {
  at::Tensor& fixed = sample_ids_[index(micro_batch)];
  if (!fixed.defined()) fixed = at::empty_like(ids);
  copy_in({ids}, {fixed});
  return fixed;
}

ActionGraphs::Recorded ActionGraphs::record(const Action& action, ActionPart part, const Tensors& inputs,
                                            const device::GraphWork& work) const {
  const auto flops = std::make_shared<FlopCount>();
  try {
    return {action, part, sequence_->record(inputs, counted_apart(work, flops)), flops};
  } catch (const Error&) {
    throw;
  } catch (...) {
    refuse_recording();
  }
}

Tensors ActionGraphs::run(const Action& action, ActionPart part, const Tensors& inputs, const device::GraphWork& work) {
  if (records_) recorded_.push_back(record(action, part, inputs, work));
  check(next_ < recorded_.size() && recorded_[next_].action == action && recorded_[next_].part == part,
        concat("action ", to_text(action), " in its recorded position"));
  const Recorded& own = recorded_[next_++];
  copy_in(inputs, own.graph->inputs());
  own.graph->launch();
  nn::add_flops(*own.flops);
  return own.graph->outputs();
}

}  // namespace sluice::pipeline
