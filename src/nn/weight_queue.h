// weight_queue: weight gradients deferred by a backward pass that computes only input gradients (split backward of the
// zero-bubble schedules, Qi et al. 2024). The executor gives one queue to the forward pass of each micro-batch, runs
// backward (action I), later run() (action W).
// Life: the queue must outlive the backward pass. Memory: until run(), it holds the inputs and output gradients.
// Threads: backward fills it, then run() empties it; the caller orders the two. Not thread-safe by itself.
#pragma once

#include <ATen/ATen.h>

#include <deque>
#include <functional>
#include <vector>

namespace sluice::nn {

class WeightGradQueue {
 public:
  // parameters: whose gradients `work` adds to. kept: the activations and gradients that it holds until it has run,
  // which are to be detached: a tensor with its graph would keep alive what the graph's leaves hold, the input of the
  // stage.
  void push(std::vector<at::Tensor> parameters, std::vector<at::Tensor> kept, std::function<void()> work) {
    waiting_.push_back({std::move(parameters), std::move(kept), std::move(work)});
  }

  // Computes the gradients in the order of backward and adds them to the parameters' .grad. on_done, when set, is
  // called for each parameter after the last work that adds to it.
  void run(const std::function<void(const at::Tensor& parameter)>& on_done = {});

  [[nodiscard]] bool empty() const { return waiting_.empty(); }
  // Some work that adds to the gradient of `parameter` has not run yet.
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

// The parameter that autograd gave back as `saved`: where hooks watch what it saves (pipeline/saved_tensors.h) that is
// another variable of the same data, whose .grad nobody reads. Call it during backward.
at::Tensor parameter_of(const at::Tensor& saved);

// parameter.grad += gradient; keeps the storage of a defined .grad (it may be a view into a bucket).
void add_to_gradient(const at::Tensor& parameter, const at::Tensor& gradient);

}  // namespace sluice::nn
