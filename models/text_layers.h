// text_layers: what the text models share. The first layer takes tokens, and if given `mask`, `types` and `positions`
// (model.h). A border is {hidden, mask, positions} without what is not given at its end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nn/registry.h"

namespace sluice::models {

struct TextInputs {
  at::Tensor tokens, mask, types, positions;  // [N, T] int64; undefined: not given, except for `tokens`
};

// BugError for other shapes, or more than `longest` tokens.
[[nodiscard]] TextInputs text_inputs(const nn::Tensors& inputs, std::int64_t longest);

// Undefined if there are fewer.
[[nodiscard]] at::Tensor at_or_none(const nn::Tensors& tensors, std::size_t index);

// Without undefined tensors at the end.
[[nodiscard]] nn::Tensors border(nn::Tensors tensors);

// The rows `first` + positions of a table. positions: [N, T], or undefined: 0 .. tokens - 1. Returns [N, T, width] or
// [T, width].
[[nodiscard]] at::Tensor position_rows(const nn::Parameter& table, const at::Tensor& positions, std::int64_t tokens,
                                       std::int64_t first = 0);

// x: [N, T, width]. Returns [N, width] of the last position that is not padding.
[[nodiscard]] at::Tensor last_tokens(const at::Tensor& x, const at::Tensor& mask);

// [N, T, width] -> [m, width]: the rows that have a target, at least one row. Returns x itself on GPUs, and if less
// than a fifth of the rows have no target.
[[nodiscard]] at::Tensor rows_to_score(const at::Tensor& x, const nn::ForwardContext& context);

}  // namespace sluice::models
