// partial_pushes: pushes whose own part has arrived at this server, until all other servers hold theirs. It keeps the
// newest push of each worker. Threads: one. Errors: those of PartHolder::ask_for().
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "ps/layout.h"
#include "ps/net/messages.h"
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

struct PartialPush {
  PushMade made;
  Tensors tensors;  // this server's shards
};

class PartialPushes {
 public:
  // `holders` must outlive this object.
  explicit PartialPushes(std::vector<PartHolder*> holders) : holders_(std::move(holders)) {}

  // Combined state of the other servers: the first one that is not kFinite, else kFinite.
  [[nodiscard]] PartState part_state(const PushKey& push) const;

  void add(PartialPush push);
  // Returns null if no push of that worker waits.
  [[nodiscard]] const PartialPush* find(WorkerId worker) const;
  // Requires find() to return a push.
  [[nodiscard]] PartialPush take(WorkerId worker);
  void erase(WorkerId worker) { pushes_.erase(worker); }
  // Asks all servers that have not reported their part.
  void ask_again() const;

 private:
  std::vector<PartHolder*> holders_;
  std::map<WorkerId, PartialPush> pushes_;
};

}  // namespace sluice::ps
