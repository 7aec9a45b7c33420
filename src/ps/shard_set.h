// shard_set: the shards of one server, and the two halves of each step of an update. The first half computes the result
// and changes nothing; the second commits it. In between all servers agree on the norm and that all is finite.
// Threads: one, with helpers for large shards; each uses one thread of LibTorch. Their number does not change any bit.
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

// Below this total size of all shards, waking a thread takes longer than it saves (docs/results/performance.md).
inline constexpr std::size_t kLeastBytesForThreads = std::size_t{4} << 20;

class ShardSet {
 public:
  // values: [shard], flat. threads: number of parallel threads with the caller; at most one per shard is used.
  ShardSet(const optim::OptimizerOptions& optimizer, const std::vector<at::Tensor>& values, int threads = 1);

  [[nodiscard]] bool are_finite(const Tensors& pushed) const;
  // pushed: [push of the mix], all finite. The first push's memory may be overwritten.
  [[nodiscard]] Prepared prepare(const ShardStep& step, const std::vector<const Tensors*>& pushed);
  void commit(const ShardStep& step, const ShardUpdate& update);

  [[nodiscard]] std::vector<at::Tensor> values() const;  // valid as in ShardState::values()
  [[nodiscard]] NamedStates optimizer_states() const;    // copies
  // Continues with the optimizer states of an earlier set. updates: number of updates that the earlier set made.
  void resume_from(const NamedStates& states, std::int64_t updates);

 private:
  void for_each(const ShardThreads::Work& work) const;

  std::vector<ShardState> shards_;
  std::unique_ptr<ShardThreads> threads_;  // null: only the caller works
};

}  // namespace sluice::ps
