// shard_step: messages between the servers of a run about their shards (shard_set.h). Values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ps/policy/mix.h"
#include "ps/policy/push_record.h"

namespace sluice::ps {

struct ShardStep {
  std::int64_t version = 0;  // of the weights after the update
  int index = 0;
  int count = 1;  // number of steps; 0: the update changes nothing, for example because no push has a target
  Mix mix;
  std::vector<PushKey> pushes;  // [push of the mix]
  bool mixes_weights = false;   // otherwise the mix is the gradient of an optimizer step
  bool wants_norm = false;

  [[nodiscard]] bool is_last() const { return index + 1 >= count; }
};

struct Prepared {
  double squares = 0;  // of the undivided sum; 0 if no norm was requested
  bool is_finite = true;
};

// Parameters of the second half; unused if weights are mixed.
struct ShardUpdate {
  double lr = 0;
  double divisor = 1;
};

enum class PartState {
  kMissing,
  kFinite,
  kNotFinite,
};

using NamedStates = std::vector<std::pair<std::string, std::vector<at::Tensor>>>;

// The state from which a shard server can be restored. It does not change afterwards.
struct ShardsState {
  std::vector<at::Tensor> values;  // [shard]
  NamedStates optimizer;
};

}  // namespace sluice::ps
