// weight_queue: weight gradients that backward defers when it computes only input gradients (split backward of the
// zero-bubble schedules, Qi et al. 2024): backward is action I, run() action W. The queue must outlive the backward
// pass; until run(), it holds inputs and output gradients. Not thread-safe.
#pragma once

#include <ATen/ATen.h>

#include <deque>
#include <functional>
#include <vector>

namespace sluice::nn {

class WeightGradQueue {
 public:
  // parameters: those whose gradients `work` adds to. kept: detached tensors that `work` needs; a graph would keep its
  // leaves alive, including the stage's input.
  void push(std::vector<at::Tensor> parameters, std::vector<at::Tensor> kept, std::function<void()> work) {
    waiting_.push_back({std::move(parameters), std::move(kept), std::move(work)});
  }

  // Adds the gradients to the parameters' .grad, in the order of backward. on_done, if set, is called for each
  // parameter after the last work that adds to it.
  void run(const std::function<void(const at::Tensor& parameter)>& on_done = {});

  [[nodiscard]] bool empty() const { return waiting_.empty(); }
  [[nodiscard]] bool waits_for(const at::Tensor& parameter) const;
  [[nodiscard]] std::vector<at::Tensor> kept() const;

 private:
  struct Waiting {
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> kept;
    std::function<void()> work;
  };

  std::deque<Waiting> waiting_;
};

// The parameter that autograd returned as `saved`: with hooks on saved tensors (pipeline/saved_tensors.h), `saved` is
// another variable whose .grad is never read. Call it during backward.
at::Tensor parameter_of(const at::Tensor& saved);

// parameter.grad += gradient. Keeps the storage of a defined .grad, which may be a view into a bucket.
void add_to_gradient(const at::Tensor& parameter, const at::Tensor& gradient);

}  // namespace sluice::nn
