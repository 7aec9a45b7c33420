// other_shards: the lead server's view of the shards on another server (ps/server.h). Each pair of calls starts an
// operation and waits for it, so that all servers work in parallel. An operation is done exactly once, even if it is
// sent again or the shard server restarts. Threads: one. Errors: those of the connection (ps/net/shard_link.h).
#pragma once

#include "ps/shard_step.h"

namespace sluice::ps {

class OtherShards {
 public:
  OtherShards() = default;
  virtual ~OtherShards() = default;
  OtherShards(const OtherShards&) = delete;
  OtherShards& operator=(const OtherShards&) = delete;

  // First half of a step. The shard server holds its parts of the pushes.
  virtual void prepare(const ShardStep& step) = 0;
  [[nodiscard]] virtual Prepared prepared() = 0;
  virtual void commit(const ShardStep& step, const ShardUpdate& update) = 0;
  virtual void committed() = 0;
  // Registers a step that an earlier process made. The server has done it, or does it when it connects.
  virtual void remember(const ShardStep& step, const ShardUpdate& update) = 0;

  virtual void ask_for_state() = 0;
  [[nodiscard]] virtual ShardsState state() = 0;
};

}  // namespace sluice::ps
