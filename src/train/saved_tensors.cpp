#include "train/saved_tensors.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace sluice::train {
namespace {

using torch::autograd::Engine;
using torch::autograd::SavedVariableHooks;

thread_local std::vector<at::Tensor>* collected = nullptr;  // null: this thread is not being watched

class CollectingHooks final : public SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor& tensor) override {
    tensor_ = tensor.detach();
    collected->push_back(tensor_);
  }
  at::Tensor call_unpack_hook() override { return tensor_; }

 private:
  at::Tensor tensor_;
};

class CollectingEngine final : public Engine {
 public:
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    return collected == nullptr ? nullptr : std::make_unique<CollectingHooks>();
  }
};

// Never destroyed: an engine's end waits for threads.
Engine& collecting_engine() {
  static auto* const engine = new CollectingEngine;
  return *engine;
}

class Watch {
 public:
  explicit Watch(std::vector<at::Tensor>& into) {
    collected = &into;
    torch::autograd::set_default_engine_stub(collecting_engine);
  }
  ~Watch() {
    torch::autograd::set_default_engine_stub(Engine::get_base_engine);
    collected = nullptr;
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
};

}  // namespace

std::vector<at::Tensor> tensors_saved_by(const std::function<void()>& forward) {
  std::vector<at::Tensor> tensors;
  const Watch watch(tensors);
  forward();
  return tensors;
}

}  // namespace sluice::train
