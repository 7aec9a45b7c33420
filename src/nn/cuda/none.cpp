// Replaces the GPU kernels in a build without a CUDA toolkit: no tensor suits them.
#include "core/check.h"
#include "nn/cuda/operations.h"

namespace sluice::nn::gpu {
namespace {

constexpr const char* kNoKernels = "a build with GPU kernels";

}  // namespace

bool has_kernels() { return false; }
bool run_on_device_of(const at::Tensor&) { return false; }
bool suits(const at::Tensor&) { return false; }

at::Tensor dropout(const at::Tensor&, const at::Tensor&, const MaskNumbers&) {
  check(false, kNoKernels);
  return {};
}
at::Tensor dropout_factors(at::IntArrayRef, const at::Tensor&, const MaskNumbers&) {
  check(false, kNoKernels);
  return {};
}
at::Tensor bias_gelu(const at::Tensor&, const at::Tensor&, GeluForm) {
  check(false, kNoKernels);
  return {};
}
BiasGeluGradients bias_gelu_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, GeluForm, bool) {
  check(false, kNoKernels);
  return {};
}
LayerNormResult layer_norm(const at::Tensor&, const at::Tensor&, const at::Tensor&, double, at::ScalarType) {
  check(false, kNoKernels);
  return {};
}
LayerNormGradients layer_norm_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                       const at::Tensor&, LayerNormWanted) {
  check(false, kNoKernels);
  return {};
}
void finish_batch_norm(at::Tensor&, const at::Tensor&, const at::Tensor&, bool) { check(false, kNoKernels); }

}  // namespace sluice::nn::gpu
