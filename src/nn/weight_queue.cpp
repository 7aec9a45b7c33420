#include "nn/weight_queue.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

namespace sluice::nn {

void WeightGradQueue::run(const std::function<void(const at::Tensor& parameter)>& on_done) {
  const c10::AutoGradMode no_grad(false);
  while (!waiting_.empty()) {
    const std::vector<at::Tensor> parameters = std::move(waiting_.front().parameters);
    waiting_.front().work();
    waiting_.pop_front();
    if (!on_done) continue;
    for (const at::Tensor& parameter : parameters) {
      if (!waits_for(parameter)) on_done(parameter);
    }
  }
}

bool WeightGradQueue::waits_for(const at::Tensor& parameter) const {
  return std::ranges::any_of(waiting_, [&](const Waiting& waiting) {
    return std::ranges::any_of(waiting.parameters, [&](const at::Tensor& own) { return own.is_same(parameter); });
  });
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
