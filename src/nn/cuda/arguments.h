// arguments: memory and shapes for the project's GPU kernels, internal to src/nn/cuda and its tests. Matrices are not
// empty; `void` pointers have the number type that is passed with the call.
#pragma once

#include <cstdint>

#include "nn/cuda/keyed_bits.h"
#include "nn/cuda/row_math.h"

namespace sluice::nn::gpu {

constexpr std::int64_t kNoTargetOfRow = -100;  // nn::kNoTarget
constexpr int kMostHits = 5;

// y = x times the factors of its samples; a sample has `count` elements. x null: y is the factors.
struct DropoutArguments {
  const void* x;
  const std::int64_t* sample_ids;
  std::int64_t samples, count;
  MaskNumbers mask;
  void* y;
};

// y = gelu(x + bias), with one float of bias per column.
struct BiasGeluArguments {
  const void* x;
  const float* bias;
  Matrix shape;
  void* y;
};

// grad_x, and partial [pieces, columns]: sums of grad_x over pieces of rows (pieces_of); null: not wanted.
struct BiasGeluBackwardArguments {
  const void* x;
  const float* bias;
  const void* grad;
  Matrix shape;
  void* grad_x;
  float* partial;
};

// y = (x - mean) * inverse * weight + bias, with the mean and inverse deviation of each row.
struct LayerNormArguments {
  const void* x;
  const float *weight, *bias;
  Matrix shape;
  float epsilon;
  void* y;
  float *mean, *inverse;
};

// grad_x; partial_weight and partial_bias: [pieces, columns], sums over pieces of rows. Null: not wanted (both or
// none).
struct LayerNormBackwardArguments {
  const void *x, *grad;
  const float *weight, *mean, *inverse;
  Matrix shape;
  void* grad_x;
  float *partial_weight, *partial_bias;
};

// losses and log_sums: a float for each row; 0 if its target is kNoTargetOfRow, NaN if the target is no class.
struct CrossEntropyArguments {
  const void* logits;
  const std::int64_t* targets;
  Matrix shape;
  float smoothing;
  float *losses, *log_sums;
};

// grad, of the logits. factor: the gradient of the sum of all losses, in memory.
struct CrossEntropyBackwardArguments {
  const void* logits;
  const std::int64_t* targets;
  const float *log_sums, *factor;
  Matrix shape;
  float smoothing;
  void* grad;
};

// Adds to hits[0] the targets with the largest logit, to hits[1] those among the five largest.
struct CountHitsArguments {
  const void* logits;
  const std::int64_t* targets;
  Matrix shape;
  unsigned long long* hits;
};

// y = y + residual (null: 0), then max(0, .) if relu, which keeps NaN; NaN if the channel's inverse deviation is
// 0, because its variance is infinite. A channel is a column, or row % channels.
struct BatchNormFinishArguments {
  const void* residual;
  const float* inverse;
  Matrix shape;
  std::int64_t channels;
  bool channel_is_column, relu;
  void* y;
};

}  // namespace sluice::nn::gpu
