// partial_pushes: pushes of which this server has its own part, until all others hold theirs: one of each worker, the
// newest. Not here: what a push does (network_server.h), how the others are asked (shard_link.h).
// Threads: one. Errors: those of PartHolder::ask_for.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "ps/layout.h"
#include "ps/net/messages.h"
#include "ps/shard_step.h"

namespace sluice::ps {

// Another server, which has parts of pushes of its own.
class PartHolder {
 public:
  PartHolder() = default;
  virtual ~PartHolder() = default;
  PartHolder(const PartHolder&) = delete;
  PartHolder& operator=(const PartHolder&) = delete;

  // As far as it has said so.
  [[nodiscard]] virtual PartState part_state(const PushKey& push) const = 0;
  virtual void ask_for(const PushKey& push) = 0;
};

struct PartialPush {
  PushMade made;
  Tensors tensors;  // of the shards here
};

class PartialPushes {
 public:
  // They outlive this.
  explicit PartialPushes(std::vector<PartHolder*> holders) : holders_(std::move(holders)) {}

  // Of all others together: what the first of them has that has no part, or one that is not finite.
  [[nodiscard]] PartState part_state(const PushKey& push) const;

  void add(PartialPush push);
  // Null: nothing of that worker waits.
  [[nodiscard]] const PartialPush* find(WorkerId worker) const;
  // Requires: find().
  [[nodiscard]] PartialPush take(WorkerId worker);
  void erase(WorkerId worker) { pushes_.erase(worker); }
  // Asks who has not said that it holds its part.
  void ask_again() const;

 private:
  std::vector<PartHolder*> holders_;
  std::map<WorkerId, PartialPush> pushes_;
};

}  // namespace sluice::ps
