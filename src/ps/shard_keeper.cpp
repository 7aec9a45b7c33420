#include "ps/shard_keeper.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "core/check.h"

namespace sluice::ps {

ShardKeeper::ShardKeeper(const optim::OptimizerOptions& optimizer, TensorsShape shape, const ShardsState& state,
                         std::int64_t version, int threads)
    : shape_(std::move(shape)), shards_(optimizer, state.values, threads), version_(version) {
  shards_.resume_from(state.optimizer, version);
}

bool ShardKeeper::hold(const PushKey& push, Tensors part) {
  check(shape_.fits(part), "a part of a push of the server's layout");
  Part& kept = parts_[push.worker];
  if (push < kept.push) return false;
  if (push == kept.push) return true;
  kept = {push, std::move(part)};
  kept.is_finite = shards_.are_finite(kept.tensors);
  return true;
}

PartState ShardKeeper::part_state(const PushKey& push) const {
  const auto found = parts_.find(push.worker);
  if (found == parts_.end() || found->second.push != push || found->second.tensors.shards.empty())
    return PartState::kMissing;
  return found->second.is_finite ? PartState::kFinite : PartState::kNotFinite;
}

bool ShardKeeper::has_seen(const PushKey& push) const {
  const auto found = parts_.find(push.worker);
  return found != parts_.end() && push <= found->second.push;
}

bool ShardKeeper::is_prepared(const ShardStep& step) const {
  return prepared_ && prepared_->version == step.version && prepared_->index == step.index &&
         prepared_->pushes == step.pushes;
}

std::optional<Prepared> ShardKeeper::prepare(const ShardStep& step) {
  if (!is_next(step)) return std::nullopt;
  if (is_prepared(step)) return prepared_->answer;
  std::vector<const Tensors*> pushed;
  for (const PushKey& push : step.pushes) {
    if (part_state(push) == PartState::kMissing) return std::nullopt;
    pushed.push_back(&parts_.at(push.worker).tensors);
  }
  const auto is_of_a_push = [&](const MixPart& part) { return part.push < pushed.size(); };
  if (!std::ranges::all_of(step.mix.parts, is_of_a_push)) return std::nullopt;
  // prepare() writes into the first push. That push must stay, because another lead server may want another sum.
  Tensors first;
  if (!step.mix.parts.empty()) {
    const std::size_t at = step.mix.parts.front().push;
    first = pushed[at]->clone();
    pushed[at] = &first;
  }
  prepared_ = {step.pushes, step.version, step.index, shards_.prepare(step, pushed)};
  return prepared_->answer;
}

bool ShardKeeper::has_committed(const ShardStep& step) const {
  return step.version <= version_ || (step.version == version_ + 1 && step.index < steps_done_);
}

bool ShardKeeper::commit(const ShardStep& step, const ShardUpdate& update) {
  if (has_committed(step)) return true;
  if (!prepare(step)) return false;
  shards_.commit(step, update);
  prepared_.reset();
  ++steps_done_;
  if (!step.is_last()) return true;
  version_ = step.version;
  steps_done_ = 0;
  // The key stays, so that older parts of that worker are refused.
  for (const PushKey& push : step.pushes) parts_.at(push.worker).tensors = {};
  return true;
}

Tensors ShardKeeper::weights() const { return {shards_.values(), at::empty({0}, shape_.dtype)}; }

std::vector<std::pair<PushKey, Tensors>> ShardKeeper::parts() const {
  std::vector<std::pair<PushKey, Tensors>> parts;
  for (const auto& [worker, part] : parts_) {
    if (!part.tensors.shards.empty()) parts.emplace_back(part.push, part.tensors);
  }
  return parts;
}

ShardsState ShardKeeper::state() const { return {.values = shards_.values(), .optimizer = shards_.optimizer_states()}; }

}  // namespace sluice::ps
