// push_record: what a worker says of what it pushes to a parameter server; the same record for every way of training.
// A value.
#pragma once

#include <compare>
#include <cstdint>

namespace sluice::ps {

enum class WorkerId : int {};  // its index among the workers of a run, from 0; kept when it dies and comes back

enum class Payload {
  kGradients,  // of the summed loss over the targets of its examples
  kWeights,    // its own, after steps of its own
  kDelta,      // the weights that it began with minus its own
};

// What becomes of a push.
enum class PushAnswer {
  kCommitted,  // it is in an update to come
  kDuplicate,  // it was committed before: nothing happens
  kUnknown,    // it was not, and never will be: its worker is not there, or has come back since
  kOutOfTurn,  // its worker has not begun a step on those weights, or another push of it comes first
  kRefused,    // it has numbers that cannot be, such as infinity
};

// Which push it is.
struct PushKey {
  WorkerId worker{};
  int incarnation = 0;
  std::int64_t sequence = 0;

  friend auto operator<=>(const PushKey&, const PushKey&) = default;
};

struct PushRecord {
  WorkerId worker{};
  int incarnation = 0;            // of the worker: counts how often it has joined, from 1
  std::int64_t sequence = 0;      // number of the push in this incarnation, from 1
  std::int64_t base_version = 0;  // of the weights that it began with
  std::int64_t examples = 0;      // samples that have run
  std::int64_t targets = 0;       // of them that the loss counts: one a sample, or of texts the tokens
  std::int64_t local_steps = 0;   // updates of its own since it began; 0 with gradients
  double factor = 1;              // with dual batch sizes: its share of an epoch by a large worker's (batch_plan.h)
  Payload payload = Payload::kGradients;

  [[nodiscard]] PushKey key() const { return {worker, incarnation, sequence}; }
  friend bool operator==(const PushRecord&, const PushRecord&) = default;
};

// Updates between the weights that a push began with and those of the update that it is in.
[[nodiscard]] inline std::int64_t staleness_of(const PushRecord& push, std::int64_t version) {
  return version - 1 - push.base_version;
}

}  // namespace sluice::ps
