#include "ps/shard_set.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

namespace sluice::ps {

ShardSet::ShardSet(const optim::OptimizerOptions& optimizer, const std::vector<at::Tensor>& values) {
  for (const at::Tensor& shard : values) shards_.emplace_back(optimizer, shard);
}

Prepared ShardSet::prepare(const ShardStep& step, const std::vector<const Tensors*>& pushed) {
  Prepared prepared;
  if (step.count == 0) return prepared;
  for (std::size_t s = 0; s < shards_.size(); ++s) {
    std::vector<at::Tensor> of_shard;
    for (const Tensors* push : pushed) of_shard.push_back(push->shards[s]);
    ShardState& shard = shards_[s];
    if (step.mixes_weights) {
      prepared.is_finite &= shard.mix_weights(step.mix, of_shard);
      continue;
    }
    shard.add_up(step.mix, of_shard);
    if (step.wants_norm)
      prepared.squares += shard.sum_of_squares();
    else
      prepared.is_finite &= shard.is_finite();
  }
  prepared.is_finite &= std::isfinite(prepared.squares);
  return prepared;
}

void ShardSet::take(const ShardStep& step, const ShardUpdate& update) {
  if (step.count == 0) return;
  for (ShardState& shard : shards_) {
    if (step.mixes_weights)
      shard.take_mixed();
    else
      shard.update(update.lr, update.divisor);
  }
}

std::vector<at::Tensor> ShardSet::values() const {
  std::vector<at::Tensor> values;
  for (const ShardState& shard : shards_) values.push_back(shard.values());
  return values;
}

NamedStates ShardSet::optimizer_states() const {
  NamedStates states;
  const auto& named = shards_.front().optimizer().states();
  for (std::size_t i = 0; i < named.size(); ++i) {
    auto& [name, of_shards] = states.emplace_back(named[i].first, std::vector<at::Tensor>{});
    for (const ShardState& shard : shards_) of_shards.push_back(shard.optimizer().states()[i].second.clone());
  }
  return states;
}

void ShardSet::go_on_from(const NamedStates& states, std::int64_t updates) {
  for (const auto& [name, of_shards] : states) {
    for (std::size_t s = 0; s < shards_.size(); ++s) shards_[s].load_optimizer(name, of_shards[s]);
  }
  for (ShardState& shard : shards_) shard.set_updates(updates);
}

}  // namespace sluice::ps
