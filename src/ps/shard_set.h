// shard_set: the shards that one server keeps, as one: the two halves of each step of an update. The first half
// computes what comes of the pushes and changes nothing; the second one takes it. Between them all servers agree: on
// the norm over all shards, and that nothing is infinite.
// Threads: one, which others help where shards are large; each uses one thread of LibTorch. The bits of the result do
// not depend on how many there are. Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "optim/optimizer.h"
#include "ps/layout.h"
#include "ps/policy/mix.h"
#include "ps/shard_state.h"
#include "ps/shard_threads.h"

namespace sluice::ps {

// Of all shards, below which waking a thread up takes longer than it saves (docs/performance.md).
inline constexpr std::size_t kLeastBytesForThreads = std::size_t{4} << 20;

// One step of an update: a mix of its pushes, told to every server alike. A value.
struct ShardStep {
  std::int64_t version = 0;  // of the weights that come of the update
  int index = 0;             // of the step among those of its update
  int count = 1;             // 0: the update changes nothing, as one of pushes without a target
  Mix mix;
  std::vector<PushKey> pushes;  // [push of the mix]
  bool mixes_weights = false;   // else the mix is the gradient of an optimizer step
  bool wants_norm = false;

  [[nodiscard]] bool is_last() const { return index + 1 >= count; }
};

// What came of the first half.
struct Prepared {
  double squares = 0;  // of the sum, not yet divided; 0 where no norm was asked for
  bool is_finite = true;
};

// What the second half takes it with; of no meaning where weights are mixed.
struct ShardUpdate {
  double lr = 0;
  double divisor = 1;
};

// By names of the optimizer; [shard].
using NamedStates = std::vector<std::pair<std::string, std::vector<at::Tensor>>>;

class ShardSet {
 public:
  // values: [shard], flat. threads: that work at once, the caller's included; at most one a shard.
  ShardSet(const optim::OptimizerOptions& optimizer, const std::vector<at::Tensor>& values, int threads = 1);

  // What is pushed to these shards.
  [[nodiscard]] bool are_finite(const Tensors& pushed) const;
  // pushed: [push of the mix], each of them finite. The first one's memory may be written.
  [[nodiscard]] Prepared prepare(const ShardStep& step, const std::vector<const Tensors*>& pushed);
  void take(const ShardStep& step, const ShardUpdate& update);

  [[nodiscard]] std::vector<at::Tensor> values() const;  // as ShardState has them
  [[nodiscard]] NamedStates optimizer_states() const;    // copies
  // Goes on from an earlier one's, after so many updates.
  void go_on_from(const NamedStates& states, std::int64_t updates);
  [[nodiscard]] const std::vector<ShardState>& shards() const { return shards_; }

 private:
  void for_each(const ShardThreads::Work& work) const;

  std::vector<ShardState> shards_;
  std::unique_ptr<ShardThreads> threads_;  // null: the caller does it all
};

}  // namespace sluice::ps
