#include "nn/weight_queue.h"

#include <c10/core/GradMode.h>

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
