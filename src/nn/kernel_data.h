// kernel_data: passes CPU tensors to the kernels of kernels/ as pointers to float or kernels::Bf16.
#pragma once

#include <bit>
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "nn/bfloat16.h"
#include "nn/kernels/kernels.h"

namespace sluice::nn {

[[nodiscard]] inline bool suits_kernels(const at::Tensor& x) {
  return x.device().is_cpu() && (x.scalar_type() == at::kFloat || is_bf16(x));
}

// Calls body(T{}) with the kernels' type for x. Requires: suits_kernels(x).
template <typename Body>
decltype(auto) with_type_of(const at::Tensor& x, const Body& body) {
  return is_bf16(x) ? body(kernels::Bf16{}) : body(float{});
}

[[nodiscard]] inline float number(float value) { return value; }
[[nodiscard]] inline float number(kernels::Bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

template <typename T>
[[nodiscard]] const T* values_of(const at::Tensor& t) {
  return t.defined() ? static_cast<const T*>(t.const_data_ptr()) : nullptr;
}
template <typename T>
[[nodiscard]] T* mutable_values_of(const at::Tensor& t) {
  return t.defined() ? static_cast<T*>(t.mutable_data_ptr()) : nullptr;
}

}  // namespace sluice::nn
