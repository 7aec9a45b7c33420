// shard_keeper: a shard server without its network: it holds the parts of pushes that are of its shards, and does the
// steps that the lead server tells it (ps/server.h). Each step is done once, however often it is told; so that of a log
// of parts and steps the same shards come again, bit for bit.
// Threads: one. Errors: none; what cannot be done is told by the value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "ps/shard_set.h"

namespace sluice::ps {

class ShardKeeper {
 public:
  ShardKeeper(const optim::OptimizerOptions& optimizer, TensorsShape shape, const ShardsState& state,
              std::int64_t version, int threads = 1);

  // Keeps the newest part of each worker: an older one is in an update, or never will be. Whether this one is kept, or
  // was already. Requires: the shape.
  bool hold(const PushKey& push, Tensors part);
  [[nodiscard]] PartState part_state(const PushKey& push) const;

  // Whether it has that part, or had a newer one of that worker.
  [[nodiscard]] bool has_seen(const PushKey& push) const;

  // Nothing: it lacks a part, or the step is not the next one.
  [[nodiscard]] std::optional<Prepared> prepare(const ShardStep& step);
  // Whether the step is done, now or before.
  [[nodiscard]] bool commit(const ShardStep& step, const ShardUpdate& update);
  [[nodiscard]] bool has_committed(const ShardStep& step) const;

  [[nodiscard]] std::int64_t version() const { return version_; }  // updates that are done
  [[nodiscard]] int steps_done() const { return steps_done_; }     // of the next one
  void go_on_after(int steps_done) { steps_done_ = steps_done; }
  [[nodiscard]] const TensorsShape& shape() const { return shape_; }
  [[nodiscard]] Tensors weights() const;  // as ShardState has them
  [[nodiscard]] ShardsState state() const;
  // The parts that are held.
  [[nodiscard]] std::vector<std::pair<PushKey, Tensors>> parts() const;

 private:
  struct Part {
    PushKey push;
    Tensors tensors;
    bool is_finite = true;
  };
  // What was prepared last: the same question has the same answer.
  struct Asked {
    std::vector<PushKey> pushes;
    std::int64_t version = 0;
    int index = 0;
    Prepared answer;
  };

  [[nodiscard]] bool is_prepared(const ShardStep& step) const;
  [[nodiscard]] bool is_next(const ShardStep& step) const {
    return step.version == version_ + 1 && step.index == steps_done_;
  }

  TensorsShape shape_;
  ShardSet shards_;
  std::int64_t version_ = 0;
  int steps_done_ = 0;  // of the update after it
  std::optional<Asked> prepared_;
  std::map<WorkerId, Part> parts_;
};

}  // namespace sluice::ps
