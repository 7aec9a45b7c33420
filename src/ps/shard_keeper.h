// shard_keeper: a shard server without its network. It holds its parts of pushes and does each step of the lead server
// (ps/server.h) once. Replaying a log gives the same bits. Threads: one. Errors: returned as values.
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

  // Keeps only the newest part of each worker: an older one is in an update already, or never will be. Returns whether
  // this part is kept now. Requires that its shape fits.
  bool hold(const PushKey& push, Tensors part);
  [[nodiscard]] PartState part_state(const PushKey& push) const;

  // Whether this part or a newer one of that worker has arrived.
  [[nodiscard]] bool has_seen(const PushKey& push) const;

  // Returns nothing if a part is missing or the step is not the next one.
  [[nodiscard]] std::optional<Prepared> prepare(const ShardStep& step);
  [[nodiscard]] bool commit(const ShardStep& step, const ShardUpdate& update);
  [[nodiscard]] bool has_committed(const ShardStep& step) const;

  [[nodiscard]] std::int64_t version() const { return version_; }
  [[nodiscard]] int steps_done() const { return steps_done_; }  // steps done of the next update
  void go_on_after(int steps_done) { steps_done_ = steps_done; }
  [[nodiscard]] const TensorsShape& shape() const { return shape_; }
  [[nodiscard]] Tensors weights() const;  // valid as in ShardState::values()
  [[nodiscard]] ShardsState state() const;
  [[nodiscard]] std::vector<std::pair<PushKey, Tensors>> parts() const;

 private:
  struct Part {
    PushKey push;
    Tensors tensors;
    bool is_finite = true;
  };
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
  int steps_done_ = 0;
  std::optional<Asked> prepared_;
  std::map<WorkerId, Part> parts_;
};

}  // namespace sluice::ps
