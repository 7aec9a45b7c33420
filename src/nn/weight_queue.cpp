#include "nn/weight_queue.h"

#include <c10/core/GradMode.h>

#include <utility>

namespace sluice::nn {

void WeightGradQueue::run() {
  const c10::AutoGradMode no_grad(false);
  for (auto& work : std::exchange(work_, {})) {
    work();
    work = nullptr;  // frees the activations that it holds
  }
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
