// shard_step: what the servers of a run tell each other of the shards that each keeps: the steps of an update in their
// two halves (shard_set.h), and the state that they leave. Values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ps/policy/mix.h"
#include "ps/policy/push_record.h"

namespace sluice::ps {

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

// With what the second half commits it; of no meaning where weights are mixed.
struct ShardUpdate {
  double lr = 0;
  double divisor = 1;
};

// What a server has of a push: its part.
enum class PartState {
  kMissing,  // not yet, or it has not said so
  kFinite,
  kNotFinite,  // it has numbers that are not
};

// By names of the optimizer; [shard].
using NamedStates = std::vector<std::pair<std::string, std::vector<at::Tensor>>>;

// All that a server of some shards is made of again. It stays as it is.
struct ShardsState {
  std::vector<at::Tensor> values;  // [shard]
  NamedStates optimizer;
};

}  // namespace sluice::ps
