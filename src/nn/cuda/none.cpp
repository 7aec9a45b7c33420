// Replaces the GPU kernels in a build without a CUDA toolkit: no tensor suits them.
#include "core/check.h"
#include "nn/cuda/operations.h"

namespace sluice::nn::gpu {
namespace {

template <typename Result>
Result no_kernels() {
  check(false, "a build with GPU kernels");
  return Result();
}

}  // namespace

bool has_kernels() { return false; }
bool run_on_device_of(const at::Tensor&) { return false; }
bool suits(const at::Tensor&) { return false; }

at::Tensor dropout(const at::Tensor&, const at::Tensor&, const MaskNumbers&) { return no_kernels<at::Tensor>(); }
at::Tensor dropout_factors(at::IntArrayRef, const at::Tensor&, const MaskNumbers&) { return no_kernels<at::Tensor>(); }
at::Tensor bias_gelu(const at::Tensor&, const at::Tensor&, GeluForm) { return no_kernels<at::Tensor>(); }
BiasGeluGradients bias_gelu_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, GeluForm, bool) {
  return no_kernels<BiasGeluGradients>();
}
LayerNormResult layer_norm(const at::Tensor&, const at::Tensor&, const at::Tensor&, double, at::ScalarType) {
  return no_kernels<LayerNormResult>();
}
LayerNormGradients layer_norm_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                       const at::Tensor&, LayerNormWanted) {
  return no_kernels<LayerNormGradients>();
}
RowLosses cross_entropy(const at::Tensor&, const at::Tensor&, double) { return no_kernels<RowLosses>(); }
at::Tensor cross_entropy_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, double) {
  return no_kernels<at::Tensor>();
}
at::Tensor count_hits(const at::Tensor&, const at::Tensor&) { return no_kernels<at::Tensor>(); }
void finish_batch_norm(at::Tensor&, const at::Tensor&, const at::Tensor&, bool) { no_kernels<void*>(); }

}  // namespace sluice::nn::gpu
