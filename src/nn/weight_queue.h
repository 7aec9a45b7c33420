// weight_queue: weight gradients that backward defers when it computes only input gradients (split backward of the
// zero-bubble schedules, Qi et al. 2024). The executor passes one queue to the forward pass of each micro-batch, runs
// backward (action I) and later run() (action W).
// Lifetime: the queue must outlive the backward pass. Memory: until run(), it holds the inputs and output gradients.
// Threads: not thread-safe; the caller orders the backward pass, which fills it, before run().
#pragma once

#include <ATen/ATen.h>

#include <deque>
#include <functional>
#include <vector>

namespace sluice::nn {

class WeightGradQueue {
 public:
  // parameters: those whose gradients `work` adds to. kept: activations and gradients that `work` needs. They must be
  // detached: a tensor with its graph would keep the graph's leaves alive, including the stage's input.
  void push(std::vector<at::Tensor> parameters, std::vector<at::Tensor> kept, std::function<void()> work) {
    waiting_.push_back({std::move(parameters), std::move(kept), std::move(work)});
  }

  // Computes the gradients in the order of backward and adds them to the parameters' .grad. If on_done is set, it is
  // called for each parameter after the last work that adds to it.
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

// The parameter that autograd returned as `saved`. With hooks on saved tensors (pipeline/saved_tensors.h), `saved` is
// another variable with the same data, and its .grad is never read. Call it during backward.
at::Tensor parameter_of(const at::Tensor& saved);

// parameter.grad += gradient. Keeps the storage of a defined .grad, which may be a view into a bucket.
void add_to_gradient(const at::Tensor& parameter, const at::Tensor& gradient);

}  // namespace sluice::nn
