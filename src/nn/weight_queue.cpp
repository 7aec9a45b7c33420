#include "nn/weight_queue.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace sluice::nn {

void WeightGradQueue::run() {
  const c10::AutoGradMode no_grad(false);
  for (Waiting& waiting : std::exchange(waiting_, {})) {
    waiting.work();
    waiting = {};
  }
}

std::vector<at::Tensor> WeightGradQueue::kept() const {
  std::vector<at::Tensor> all;
  for (const Waiting& waiting : waiting_) all.insert(all.end(), waiting.kept.begin(), waiting.kept.end());
  return all;
}

at::Tensor parameter_of(const at::Tensor& saved) {
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(saved);
  const auto* const adds_up = dynamic_cast<const torch::autograd::AccumulateGrad*>(accumulator.get());
  return adds_up == nullptr ? saved : adds_up->variable;
}

void add_to_gradient(const at::Tensor& parameter, const at::Tensor& gradient) {
  if (!gradient.defined()) return;
  at::Tensor& total = parameter.mutable_grad();
  if (total.defined()) {
    total.add_(gradient);
  } else {
    total = gradient.detach();
  }
}

}  // namespace sluice::nn
