#include "data/mask_tokens.h"

#include <algorithm>

#include "core/rng.h"

namespace sluice::data {

void mask_tokens(Fields& fields, const MaskOptions& options, const std::function<std::uint64_t(std::size_t)>& key_of) {
  const at::Tensor& inputs = fields.at(kInputs);
  const at::Tensor targets = uninitialized(inputs.sizes(), at::kLong);
  const auto mask = fields.find(kMask);
  const auto* const is_token = mask == fields.end() ? nullptr : mask->second.const_data_ptr<std::int64_t>();
  auto* const input = inputs.mutable_data_ptr<std::int64_t>();
  auto* const target = targets.mutable_data_ptr<std::int64_t>();
  const std::int64_t length = inputs.size(1);
  for (std::int64_t row = 0; row < inputs.size(0); ++row) {
    RngStream rng(key_of(static_cast<std::size_t>(row)));
    for (std::int64_t i = row * length; i < (row + 1) * length; ++i) {
      target[i] = kNoTarget;
      if ((is_token != nullptr && is_token[i] == 0) || std::ranges::find(options.kept, input[i]) != options.kept.end())
        continue;
      if (rng.uniform() >= options.share) continue;
      target[i] = input[i];
      const double fate = rng.uniform();
      if (fate < 0.8) {
        input[i] = options.mask_id;
      } else if (fate < 0.9) {
        input[i] = static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(options.vocabulary)));
      }
    }
  }
  fields[kTargets] = targets;
}

}  // namespace sluice::data
