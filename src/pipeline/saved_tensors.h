// saved_tensors: the tensors that autograd keeps from a forward pass for its backward, found by LibTorch's hooks on
// saved variables: all that built-in operations and our own autograd functions save. Not here: what they cost
// (pipeline/live_bytes.h). Not seen: tensors that an autograd function keeps by other means than save_for_backward();
// the layers of src/nn do not.
// Threads: what the calling thread saves; others may run autograd meanwhile. Hooks on saved variables have no public
// C++ entry: they belong to the engine, so from the first watch on an engine of our own stands in LibTorch's place. It
// differs in nothing but these hooks.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

namespace sluice::pipeline {

// What tells storages apart: views of one have it in common.
[[nodiscard]] inline const void* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

class SavedTensorSink {
 public:
  virtual ~SavedTensorSink() = default;
  // For each tensor as it is saved, in order; one that is saved twice comes twice, and it may be undefined. What is
  // returned lives for as long as autograd keeps the tensor.
  [[nodiscard]] virtual std::shared_ptr<const void> saved(const at::Tensor& tensor) = 0;
};

// While it lives, what this thread saves goes to `sink`; with none nothing changes. They nest: the innermost one
// counts.
class SavedTensorWatch {
 public:
  explicit SavedTensorWatch(SavedTensorSink* sink);
  ~SavedTensorWatch();
  SavedTensorWatch(const SavedTensorWatch&) = delete;
  SavedTensorWatch& operator=(const SavedTensorWatch&) = delete;

 private:
  SavedTensorSink* outer_;
};

// They share storage with the originals.
[[nodiscard]] std::vector<at::Tensor> tensors_saved_by(const std::function<void()>& forward);

}  // namespace sluice::pipeline
