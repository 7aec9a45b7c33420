#include "models/text_layers.h"

#include <ATen/ATen.h>

#include "core/check.h"
#include "core/concat.h"
#include "nn/cross_entropy.h"
#include "nn/embedding.h"

namespace sluice::models {

at::Tensor at_or_none(const nn::Tensors& tensors, std::size_t index) {
  return index < tensors.size() ? tensors[index] : at::Tensor();
}

TextInputs text_inputs(const nn::Tensors& inputs, std::int64_t longest) {
  const TextInputs all{inputs.at(0), at_or_none(inputs, 1), at_or_none(inputs, 2), at_or_none(inputs, 3)};
  check(all.tokens.dim() == 2 && all.tokens.size(1) <= longest,
        concat("tokens [N, T] of at most ", longest, " positions, not ", all.tokens.sizes()));
  for (const at::Tensor* other : {&all.mask, &all.types, &all.positions})
    check(!other->defined() || other->sizes() == all.tokens.sizes(),
          "mask, types and positions in the shape of tokens");
  return all;
}

nn::Tensors border(nn::Tensors tensors) {
  while (tensors.size() > 1 && !tensors.back().defined()) tensors.pop_back();
  return tensors;
}

at::Tensor position_rows(const nn::Parameter& table, const at::Tensor& positions, std::int64_t tokens,
                         std::int64_t first) {
  if (!positions.defined()) return table.value.narrow(0, first, tokens);
  return nn::embedding(first == 0 ? positions : positions + first, table.value, nullptr);
}

at::Tensor last_tokens(const at::Tensor& x, const at::Tensor& mask) {
  if (!mask.defined()) return x.select(1, -1);
  const at::Tensor numbers = at::arange(x.size(1), x.options().dtype(at::kLong));
  const at::Tensor last = (mask.to(x.device()).ne(0) * numbers).argmax(1);
  return x.gather(1, last.view({-1, 1, 1}).expand({-1, 1, x.size(2)})).squeeze(1);
}

at::Tensor rows_to_score(const at::Tensor& x, const nn::ForwardContext& context) {
  if (!context.targets.defined() || !x.device().is_cpu()) return x;
  const at::Tensor rows = nn::rows_with_targets(context.targets);
  return 5 * rows.numel() > 4 * context.targets.numel() ? x : x.flatten(0, 1).index_select(0, rows);
}

}  // namespace sluice::models
