// saved_tensors: the tensors that autograd keeps from a forward pass for its backward, found by LibTorch's hooks on
// saved variables: all that built-in operations and our own autograd functions save. Not here: what they cost.
// Not seen: tensors that an autograd function keeps by other means than save_for_backward(); the layers of src/nn do
// not. Threads: what the calling thread saves; meanwhile no other thread may run autograd. Hooks on saved variables
// have no public C++ entry: they belong to the engine, so an engine of our own stands in for LibTorch's meanwhile.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace sluice::train {

// In the order in which they were saved; one that is saved twice comes twice. They share storage with the originals.
[[nodiscard]] std::vector<at::Tensor> tensors_saved_by(const std::function<void()>& forward);

}  // namespace sluice::train
