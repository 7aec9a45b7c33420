// saved_tensors: observes the tensors that autograd saves for backward, except those that an autograd function keeps
// without save_for_backward(): in src/nn only the tables of rotary positions, which the model keeps in any case.
// Threads: observes the calling thread. LibTorch has no public C++ API for hooks on saved variables. From the first
// watch on, an engine of our own therefore replaces LibTorch's; it differs in these hooks only.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

namespace sluice::pipeline {

// Identifies a storage: all views of it have the same value.
[[nodiscard]] inline const void* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

class SavedTensorSink {
 public:
  virtual ~SavedTensorSink() = default;
  // Called for each save, in order; the tensor may be undefined. The result lives as long as autograd keeps the tensor.
  [[nodiscard]] virtual std::shared_ptr<const void> saved(const at::Tensor& tensor) = 0;
};

// While it lives, tensors that this thread saves go to `sink`; a null sink changes nothing. The innermost watch counts.
class SavedTensorWatch {
 public:
  explicit SavedTensorWatch(SavedTensorSink* sink);
  ~SavedTensorWatch();
  SavedTensorWatch(const SavedTensorWatch&) = delete;
  SavedTensorWatch& operator=(const SavedTensorWatch&) = delete;

 private:
  SavedTensorSink* outer_;
};

[[nodiscard]] std::vector<at::Tensor> tensors_saved_by(const std::function<void()>& forward);

}  // namespace sluice::pipeline
