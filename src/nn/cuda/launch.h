// launch: starts the project's GPU kernels (*.cu) on raw memory of the current device. Internal to src/nn/cuda. No call
// waits. Sums are float32 for every number type. Errors: c10's, if a kernel cannot be started; std::length_error if the
// grid would be too large. Errors of a running kernel appear in a later call, as usual with CUDA.
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

// sums[column] = sum over the pieces of partial [pieces, columns].
void launch_sum_pieces(const float* partial, Matrix shape, float* sums, cudaStream_t stream);

void launch_cross_entropy(const CrossEntropyArguments& arguments, Number type, cudaStream_t stream);
void launch_cross_entropy_backward(const CrossEntropyBackwardArguments& arguments, Number type, cudaStream_t stream);
void launch_count_hits(const CountHitsArguments& arguments, Number type, cudaStream_t stream);

void launch_batch_norm_finish(const BatchNormFinishArguments& arguments, Number type, cudaStream_t stream);

}  // namespace sluice::nn::gpu
