// arguments: what our GPU kernels are given, as raw memory. Matrices have at least one number; pointers that may be
// null say so. What is `void` is of the type that goes with the call. Internal to src/nn/cuda and its tests.
#pragma once

#include <cstdint>

#include "nn/cuda/keyed_bits.h"
#include "nn/cuda/row_math.h"

namespace sluice::nn::gpu {

// y = x times the factors of its samples, each `count` numbers long. x null: y is the factors themselves.
struct DropoutArguments {
  const void* x;
  const std::int64_t* sample_ids;
  std::int64_t samples, count;
  MaskNumbers mask;
  void* y;
};

// y = gelu(x + bias), bias one float a column.
struct BiasGeluArguments {
  const void* x;
  const float* bias;
  Matrix shape;
  void* y;
};

// grad_x; partial [pieces, columns]: the sums of grad_x over pieces of rows (pieces_of), null: not wanted.
struct BiasGeluBackwardArguments {
  const void* x;
  const float* bias;
  const void* grad;
  Matrix shape;
  void* grad_x;
  float* partial;
};

// y = (x - mean) * inverse * weight + bias; mean and inverse deviation of each row.
struct LayerNormArguments {
  const void* x;
  const float *weight, *bias;
  Matrix shape;
  float epsilon;
  void* y;
  float *mean, *inverse;
};

// grad_x (null: not wanted); partial_weight and partial_bias [pieces, columns] as above (null: both not wanted).
struct LayerNormBackwardArguments {
  const void *x, *grad;
  const float *weight, *mean, *inverse;
  Matrix shape;
  void* grad_x;
  float *partial_weight, *partial_bias;
};

// y = y + residual (null: 0), then max(0, .), of NaN NaN, when relu; NaN where the channel's variance is infinite.
// A channel is a column, or else row % channels.
struct BatchNormFinishArguments {
  const void* residual;
  const float* variance;
  Matrix shape;
  std::int64_t channels;
  bool channel_is_column, relu;
  void* y;
};

}  // namespace sluice::nn::gpu
