#include "ps/net/partial_pushes.h"

#include <utility>

#include "core/check.h"

namespace sluice::ps {

PartState PartialPushes::part_state(const PushKey& push) const {
  for (const PartHolder* holder : holders_) {
    if (const PartState state = holder->part_state(push); state != PartState::kFinite) return state;
  }
  return PartState::kFinite;
}

void PartialPushes::add(PartialPush push) {
  const WorkerId worker = push.made.record.worker;
  pushes_.insert_or_assign(worker, std::move(push));
}

const PartialPush* PartialPushes::find(WorkerId worker) const {
  const auto found = pushes_.find(worker);
  return found == pushes_.end() ? nullptr : &found->second;
}

PartialPush PartialPushes::take(WorkerId worker) {
  auto node = pushes_.extract(worker);
  check(!node.empty(), "find() has returned the push that is taken");
  return std::move(node.mapped());
}

void PartialPushes::ask_again() const {
  for (const auto& [worker, push] : pushes_) {
    const PushKey key = push.made.record.key();
    for (PartHolder* holder : holders_) {
      if (holder->part_state(key) == PartState::kMissing) holder->ask_for(key);
    }
  }
}

}  // namespace sluice::ps
