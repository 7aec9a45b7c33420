// own_operator: reports a kernel of this project to LibTorch's observers as the dispatcher reports ATen's operators.
// The reported call lasts as long as the object. Without an observer it costs one query. Threads: any.
#pragma once

#include <initializer_list>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

namespace sluice::nn {

class OwnOperator {
 public:
  OwnOperator(const char* name, std::initializer_list<at::Tensor> inputs) : call_(at::RecordScope::FUNCTION) {
    if (!call_.isActive()) return;
    const std::vector<c10::IValue> values = values_of(inputs);
    call_.before(name, c10::ArrayRef<const c10::IValue>(values.data(), values.size()));
  }
  void made(std::initializer_list<at::Tensor> outputs) {
    if (call_.isActive() && call_.needsOutputs()) call_.setOutputs(values_of(outputs));
  }

 private:
  static std::vector<c10::IValue> values_of(std::initializer_list<at::Tensor> tensors) {
    std::vector<c10::IValue> values;
    for (const at::Tensor& tensor : tensors) values.emplace_back(tensor);
    return values;
  }

  at::RecordFunction call_;
};

}  // namespace sluice::nn
