#include "pipeline/saved_tensors.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <mutex>
#include <utility>

namespace sluice::pipeline {
namespace {

using torch::autograd::Engine;
using torch::autograd::SavedVariableHooks;

thread_local SavedTensorSink* watching = nullptr;  // null: this thread is not watched

class WatchingHooks final : public SavedVariableHooks {
 public:
  explicit WatchingHooks(SavedTensorSink& sink) : sink_(sink) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    tensor_ = tensor.detach();
    token_ = sink_.saved(tensor_);
  }
  at::Tensor call_unpack_hook() override { return tensor_; }

 private:
  SavedTensorSink& sink_;  // used only during the watch
  at::Tensor tensor_;
  std::shared_ptr<const void> token_;
};

class WatchingEngine final : public Engine {
 public:
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    return watching == nullptr ? nullptr : std::make_unique<WatchingHooks>(*watching);
  }
};

// Never destroyed, because an engine's destructor waits for its threads.
Engine& watching_engine() {
  static auto* const kEngine = new WatchingEngine;
  return *kEngine;
}

class Collection final : public SavedTensorSink {
 public:
  [[nodiscard]] std::shared_ptr<const void> saved(const at::Tensor& tensor) override {
    tensors_.push_back(tensor);
    return nullptr;
  }
  [[nodiscard]] std::vector<at::Tensor> take() { return std::move(tensors_); }

 private:
  std::vector<at::Tensor> tensors_;
};

}  // namespace

SavedTensorWatch::SavedTensorWatch(SavedTensorSink* sink) : outer_(watching) {
  if (sink == nullptr) return;
  watching = sink;
  static std::once_flag is_installed;
  std::call_once(is_installed, [] { torch::autograd::set_default_engine_stub(watching_engine); });
}

SavedTensorWatch::~SavedTensorWatch() { watching = outer_; }

std::vector<at::Tensor> tensors_saved_by(const std::function<void()>& forward) {
  Collection collection;
  {
    const SavedTensorWatch watch(&collection);
    forward();
  }
  return collection.take();
}

}  // namespace sluice::pipeline
