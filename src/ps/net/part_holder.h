// part_holder: what server 0 asks a shard server about its parts of pushes.
#pragma once

#include <vector>

#include "ps/push.h"
#include "ps/shard_step.h"

namespace sluice::ps {

class PartHolder {
 public:
  PartHolder() = default;
  virtual ~PartHolder() = default;
  PartHolder(const PartHolder&) = delete;
  PartHolder& operator=(const PartHolder&) = delete;

  // State of the part as last reported by that server.
  [[nodiscard]] virtual PartState part_state(const PushKey& push) const = 0;
  virtual void ask_for(const PushKey& push) = 0;
};

// The first state that is not kFinite, else kFinite.
[[nodiscard]] inline PartState part_state(const std::vector<PartHolder*>& holders, const PushKey& push) {
  for (const PartHolder* holder : holders) {
    if (const PartState state = holder->part_state(push); state != PartState::kFinite) return state;
  }
  return PartState::kFinite;
}

inline void ask_for_missing(const std::vector<PartHolder*>& holders, const PushKey& push) {
  for (PartHolder* holder : holders) {
    if (holder->part_state(push) == PartState::kMissing) holder->ask_for(push);
  }
}

}  // namespace sluice::ps
