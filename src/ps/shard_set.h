// shard_set: the shards that one server keeps, as one: the two halves of each step of an update. The first half
// computes what comes of the pushes and changes nothing; the second one commits it. Between them all servers agree: on
// the norm over all shards, and that nothing is infinite.
// Threads: one, which others help where shards are large; each uses one thread of LibTorch. The bits of the result do
// not depend on how many there are. Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "optim/optimizer.h"
#include "ps/layout.h"
#include "ps/shard_state.h"
#include "ps/shard_step.h"
#include "ps/shard_threads.h"

namespace sluice::ps {

// Of all shards, below which waking a thread up takes longer than it saves (docs/results/performance.md).
inline constexpr std::size_t kLeastBytesForThreads = std::size_t{4} << 20;

class ShardSet {
 public:
  // values: [shard], flat. threads: that work at once, the caller's included; at most one a shard.
  ShardSet(const optim::OptimizerOptions& optimizer, const std::vector<at::Tensor>& values, int threads = 1);

  // What is pushed to these shards.
  [[nodiscard]] bool are_finite(const Tensors& pushed) const;
  // pushed: [push of the mix], each of them finite. The first one's memory may be written.
  [[nodiscard]] Prepared prepare(const ShardStep& step, const std::vector<const Tensors*>& pushed);
  void commit(const ShardStep& step, const ShardUpdate& update);

  [[nodiscard]] std::vector<at::Tensor> values() const;  // as ShardState has them
  [[nodiscard]] NamedStates optimizer_states() const;    // copies
  // Goes on from an earlier one's, after so many updates.
  void resume_from(const NamedStates& states, std::int64_t updates);

 private:
  void for_each(const ShardThreads::Work& work) const;

  std::vector<ShardState> shards_;
  std::unique_ptr<ShardThreads> threads_;  // null: the caller does it all
};

}  // namespace sluice::ps
