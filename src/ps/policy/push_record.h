// push_record: the data of a worker's push to a parameter server, the same for every way of training. A value.
#pragma once

#include <compare>
#include <cstdint>

namespace sluice::ps {

enum class WorkerId : int {};  // index of a worker in the run, from 0; kept when it restarts

enum class Payload {
  kGradients,  // sum over the targets of its examples
  kWeights,    // the worker's weights, after its local steps
  kDelta,      // the weights that it began with minus its own
};

enum class PushAnswer {
  kCommitted,  // it will be in an update
  kDuplicate,  // it was committed before; ignored
  kUnknown,    // it was not committed and never will be: the worker is absent or in a newer incarnation
  kOutOfTurn,  // its worker has not begun a step on those weights, or an earlier push is missing
  kRefused,    // its numbers are invalid, for example infinite
};

struct PushKey {
  WorkerId worker{};
  int incarnation = 0;
  std::int64_t sequence = 0;

  friend auto operator<=>(const PushKey&, const PushKey&) = default;
};

struct PushRecord {
  WorkerId worker{};
  int incarnation = 0;            // counts the worker's joins, from 1
  std::int64_t sequence = 0;      // number of the push in this incarnation, from 1
  std::int64_t base_version = 0;  // version of the weights that the step began with
  std::int64_t examples = 0;      // samples that have run
  std::int64_t targets = 0;  // targets of these samples that count in the loss: one per sample, or the tokens of texts
  std::int64_t local_steps = 0;  // local optimizer steps since the pull; 0 with gradients
  double factor = 1;  // with dual batch sizes: its share of an epoch relative to a large worker's (batch_plan.h)
  Payload payload = Payload::kGradients;

  [[nodiscard]] PushKey key() const { return {worker, incarnation, sequence}; }
  friend bool operator==(const PushRecord&, const PushRecord&) = default;
};

// Number of updates between the weights that a push began with and those of its own update.
[[nodiscard]] inline std::int64_t staleness_of(const PushRecord& push, std::int64_t version) {
  return version - 1 - push.base_version;
}

}  // namespace sluice::ps
