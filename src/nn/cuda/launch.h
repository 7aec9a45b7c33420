// launch: starts our GPU kernels (*.cu) on raw memory; operations.cpp gives them tensors. Internal to src/nn/cuda.
// Requires: the device of the memory is current. Nothing waits. Sums are floats whatever the numbers are.
// Errors: c10's, when a kernel cannot be started (std::length_error where no grid is that large); those of a running
// kernel come with a later call, as CUDA's do.
#pragma once

#include <cuda_runtime_api.h>

#include "nn/cuda/arguments.h"
#include "nn/cuda/gelu_math.h"

namespace sluice::nn::gpu {

enum class Number { kFloat, kBf16 };

void launch_dropout(const DropoutArguments& arguments, Number type, cudaStream_t stream);

void launch_bias_gelu(const BiasGeluArguments& arguments, Number type, GeluForm form, cudaStream_t stream);
void launch_bias_gelu_backward(const BiasGeluBackwardArguments& arguments, Number type, GeluForm form,
                               cudaStream_t stream);

void launch_layer_norm(const LayerNormArguments& arguments, Number of_x, Number of_y, cudaStream_t stream);
void launch_layer_norm_backward(const LayerNormBackwardArguments& arguments, Number of_x, Number of_grad,
                                cudaStream_t stream);

// sums[column] of partial [pieces, columns].
void launch_sum_pieces(const float* partial, Matrix shape, float* sums, cudaStream_t stream);

void launch_batch_norm_finish(const BatchNormFinishArguments& arguments, Number type, cudaStream_t stream);

}  // namespace sluice::nn::gpu
