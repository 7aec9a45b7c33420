// other_shards: the shards of a shard server, as the lead server sees them (ps/server.h). Each pair of calls begins
// something and waits for it, so that all servers work at once. What was asked is done once, however often the shard
// server has to be asked, and also where it dies in between and comes back with what it had.
// Threads: one. Errors: those of the connection (ps/net/shard_link.h).
#pragma once

#include "ps/shard_step.h"

namespace sluice::ps {

class OtherShards {
 public:
  OtherShards() = default;
  virtual ~OtherShards() = default;
  OtherShards(const OtherShards&) = delete;
  OtherShards& operator=(const OtherShards&) = delete;

  // The first half of a step, of pushes whose parts that server holds.
  virtual void prepare(const ShardStep& step) = 0;
  [[nodiscard]] virtual Prepared prepared() = 0;
  // Its second half; requires: the first.
  virtual void commit(const ShardStep& step, const ShardUpdate& update) = 0;
  virtual void committed() = 0;
  // A step that was done before this process began: that server has done it, or is asked to when it is met.
  virtual void remember(const ShardStep& step, const ShardUpdate& update) = 0;

  // After the last update.
  virtual void ask_for_state() = 0;
  [[nodiscard]] virtual ShardsState state() = 0;
};

}  // namespace sluice::ps
