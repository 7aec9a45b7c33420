// row_kernels: the work of GPU kernels on one row or one Philox block. A Group is the lanes that share a row:
//   lane()                     the calling lane
//   sum<kRun>(columns, terms)  lane_sum() over all lanes; every lane gets the same result
//   total(value), largest(value)  of the values of all lanes; every lane gets the same result
// On a GPU each lane runs the function (grid.cuh); a test runs it with a single lane.
#pragma once

#include <cmath>

#include "nn/cuda/arguments.h"
#include "nn/cuda/number.h"

namespace sluice::nn::gpu {

// 1 / sqrt(variance + epsilon), and NaN for an infinite variance: 0 would give finite outputs and hide the overflow.
SLUICE_DEVICE inline float inverse_deviation(float squares, std::int64_t columns, float epsilon) {
  const float variance = squares / static_cast<float>(columns);
  return 1.0F / ::sqrtf(variance + epsilon) + 0.0F * variance;
}

// Two passes compute the mean and then the squared deviations. The third, which writes y, reads the row from the cache.
template <typename In, typename Out, int kRun, typename Group>
SLUICE_DEVICE inline void layer_norm_row(const Group& group, const LayerNormArguments& arguments, std::int64_t row) {
  const std::int64_t columns = arguments.shape.columns;
  const auto* x = static_cast<const In*>(arguments.x) + row * columns;
  auto* y = static_cast<Out*>(arguments.y) + row * columns;
  const auto value_at = [&](std::int64_t first, float(&values)[kRun]) { read_run(x + first, values); };
  const float mean = group.template sum<kRun>(columns, value_at) / static_cast<float>(columns);
  const auto square_at = [&](std::int64_t first, float(&values)[kRun]) {
    read_run(x + first, values);
    for (int j = 0; j < kRun; ++j) values[j] = (values[j] - mean) * (values[j] - mean);
  };
  const float inverse = inverse_deviation(group.template sum<kRun>(columns, square_at), columns, arguments.epsilon);
  for_runs_of_lane<kRun>(group.lane(), columns, [&](std::int64_t first) {
    float values[kRun], weight[kRun], bias[kRun];
    read_run(x + first, values);
    read_parameters(arguments.weight + first, weight);
    read_parameters(arguments.bias + first, bias);
    for (int j = 0; j < kRun; ++j) values[j] = (values[j] - mean) * inverse * weight[j] + bias[j];
    write_run(values, y + first);
  });
  if (group.lane().index == 0) {
    arguments.mean[row] = mean;
    arguments.inverse[row] = inverse;
  }
}

// With g = grad * weight and n = (x - mean) * inverse: grad_x = inverse * (g - mean(g) - n * mean(g * n)).
template <typename In, typename Out, int kRun, typename Group>
SLUICE_DEVICE inline void layer_norm_gradient_row(const Group& group, const LayerNormBackwardArguments& arguments,
                                                  std::int64_t row) {
  const std::int64_t columns = arguments.shape.columns;
  const auto* x = static_cast<const In*>(arguments.x) + row * columns;
  const auto* grad = static_cast<const Out*>(arguments.grad) + row * columns;
  auto* grad_x = static_cast<In*>(arguments.grad_x) + row * columns;
  const float mean = arguments.mean[row], inverse = arguments.inverse[row];
  const auto gradient_at = [&](std::int64_t first, float(&values)[kRun]) {
    float weight[kRun];
    read_run(grad + first, values);
    read_parameters(arguments.weight + first, weight);
    for (int j = 0; j < kRun; ++j) values[j] *= weight[j];
  };
  const auto normalised_at = [&](std::int64_t first, float(&values)[kRun]) {
    read_run(x + first, values);
    for (int j = 0; j < kRun; ++j) values[j] = (values[j] - mean) * inverse;
  };
  const auto product_at = [&](std::int64_t first, float(&values)[kRun]) {
    float normalised[kRun];
    gradient_at(first, values);
    normalised_at(first, normalised);
    for (int j = 0; j < kRun; ++j) values[j] *= normalised[j];
  };
  const auto count = static_cast<float>(columns);
  const float mean_gradient = group.template sum<kRun>(columns, gradient_at) / count;
  const float mean_product = group.template sum<kRun>(columns, product_at) / count;
  for_runs_of_lane<kRun>(group.lane(), columns, [&](std::int64_t first) {
    float values[kRun], normalised[kRun];
    gradient_at(first, values);
    normalised_at(first, normalised);
    for (int j = 0; j < kRun; ++j) values[j] = inverse * (values[j] - mean_gradient - normalised[j] * mean_product);
    write_run(values, grad_x + first);
  });
}

SLUICE_DEVICE inline bool is_class(std::int64_t target, std::int64_t classes) {
  return target >= 0 && target < classes;
}

// Reads the row once. Each lane keeps its largest logit and the sum of exponentials relative to it. An infinite logit
// makes the loss NaN, as in ATen.
template <typename T, int kRun, typename Group>
SLUICE_DEVICE inline void cross_entropy_row(const Group& group, const CrossEntropyArguments& arguments,
                                            std::int64_t row) {
  constexpr float kLowest = -3.402823466e38F;
  const std::int64_t classes = arguments.shape.columns, target = arguments.targets[row];
  const auto* logits = static_cast<const T*>(arguments.logits) + row * classes;
  const bool writes = group.lane().index == 0;
  if (target == kNoTargetOfRow) {
    if (writes) arguments.losses[row] = arguments.log_sums[row] = 0;
    return;
  }
  float largest = kLowest, exponentials = 0, sum = 0;
  for_runs_of_lane<kRun>(group.lane(), classes, [&](std::int64_t first) {
    float values[kRun];
    read_run(logits + first, values);
    const float before = largest;
    for (int j = 0; j < kRun; ++j) largest = ::fmaxf(largest, values[j]);
    exponentials *= ::expf(before - largest);
    for (int j = 0; j < kRun; ++j) {
      exponentials += ::expf(values[j] - largest);
      sum += values[j];
    }
  });
  const float of_row = group.largest(largest);
  const float log_sum = of_row + ::logf(group.total(exponentials * ::expf(largest - of_row)));
  const float mean = arguments.smoothing > 0 ? group.total(sum) / static_cast<float>(classes) : 0;
  if (!writes) return;
  float loss = ::nanf("");
  if (is_class(target, classes))
    loss = log_sum - (1 - arguments.smoothing) * widened(logits[target]) - arguments.smoothing * mean;
  arguments.losses[row] = loss;
  arguments.log_sums[row] = log_sum;
}

template <typename T, int kRun, typename Group>
SLUICE_DEVICE inline void cross_entropy_gradient_row(const Group& group, const CrossEntropyBackwardArguments& arguments,
                                                     std::int64_t row) {
  const std::int64_t classes = arguments.shape.columns, target = arguments.targets[row];
  const auto* logits = static_cast<const T*>(arguments.logits) + row * classes;
  auto* grad = static_cast<T*>(arguments.grad) + row * classes;
  const float log_sum = arguments.log_sums[row], factor = *arguments.factor;
  const float of_all = arguments.smoothing / static_cast<float>(classes);
  for_runs_of_lane<kRun>(group.lane(), classes, [&](std::int64_t first) {
    float values[kRun] = {};
    if (target != kNoTargetOfRow) {
      read_run(logits + first, values);
      for (int j = 0; j < kRun; ++j) {
        const float probability = of_all + (first + j == target ? 1 - arguments.smoothing : 0);
        values[j] = factor * (::expf(values[j] - log_sum) - probability);
      }
    }
    write_run(values, grad + first);
  });
}

// Number of logits that rank before the target's, of equal ones those of lower classes. A target that is no class, or
// whose logit is NaN, comes last. Counts are exact up to 2^24 classes.
template <typename T, int kRun, typename Group>
SLUICE_DEVICE inline float rank_of_target(const Group& group, const CountHitsArguments& arguments, std::int64_t row) {
  constexpr float kLast = 1e9F;
  const std::int64_t classes = arguments.shape.columns, target = arguments.targets[row];
  if (!is_class(target, classes)) return kLast;
  const auto* logits = static_cast<const T*>(arguments.logits) + row * classes;
  const float own = widened(logits[target]);
  const float ahead = group.template sum<kRun>(classes, [&](std::int64_t first, float(&values)[kRun]) {
    read_run(logits + first, values);
    for (int j = 0; j < kRun; ++j) {
      const bool is_ahead = first + j < target ? values[j] >= own : first + j > target && values[j] > own;
      values[j] = is_ahead ? 1.0F : 0.0F;
    }
  });
  return own == own ? ahead : kLast;
}

// Applies one Philox block: up to four elements of a sample. T: type of y, and of x unless x is null.
template <typename T, int kRun>
SLUICE_DEVICE inline void dropout_block(const DropoutArguments& arguments, std::uint64_t key, std::int64_t sample,
                                        std::int64_t index) {
  const auto* x = static_cast<const T*>(arguments.x);
  auto* y = static_cast<T*>(arguments.y);
  const Block block = philox_block(key, 0, static_cast<std::uint64_t>(index));
  const std::int64_t first = index * kWordsInBlock;
  for (int part = 0; part < kWordsInBlock && first + part < arguments.count; part += kRun) {
    const std::int64_t at = sample * arguments.count + first + part;
    float values[kRun];
    for (int j = 0; j < kRun; ++j) values[j] = mask_factor(arguments.mask, block.words[part + j]);
    if (x != nullptr) {
      float kept[kRun];
      read_run(x + at, kept);
      for (int j = 0; j < kRun; ++j) values[j] *= kept[j];
    }
    write_run(values, y + at);
  }
}

}  // namespace sluice::nn::gpu
