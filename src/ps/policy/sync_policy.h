// sync_policy: when pushes become an update, how far workers may be apart, and how much each push weighs. The known
// ways to train with a parameter server are presets of these values:
//   bsp, fmb    an update takes one push of every worker (bulk synchronous; fixed mini-batch)
//   amb         fmb, but a worker stops computing after a time (Ferdinand et al., ICLR 2019: anytime mini-batch)
//   ssp         every push is an update; no worker is more than s pushes ahead of the slowest (Ho et al., NeurIPS 2013)
//   asp         every push is an update; no worker waits
//   quorum      an update takes pushes of K workers, and of those that come within a grace window
//   dual_batch  every push is weights, mixed in by the factor of its batch size (Lu et al., COMPSAC 2022)
//   local_sgd   weights after H local steps, averaged by targets
//   diloco      local_sgd, but the change is the gradient of an outer Nesterov step (Douillard et al., 2023)
// coordinator.h makes the decisions; mix.h has the numbers of a merge. Values. Errors: ConfigError.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "ps/policy/push_record.h"

namespace sluice::ps {

inline constexpr std::int64_t kUnbounded = -1;

enum class Weigh {
  kTargets,  // number of trained targets
  kUniform,
  kFactor,
  kTargetsSquaredPerStep,  // targets^2 / local steps: amount and batch size of the training (Decoupled DiLoCo, 2026)
};

// How pushed weights are merged. Gradients go through the server's optimizer, deltas through its outer one.
enum class Merge {
  kMean,     // the weighted mean replaces the weights
  kHalf,     // one after the other: W <- ((2 - f) W + f w) / 2, as in COMPSAC 2022
  kBesides,  // one after the other: W <- (W + f w) / (1 + f), as in the authors' journal version
};
[[nodiscard]] Merge merge_named(std::string_view name);
[[nodiscard]] const std::vector<std::string>& merge_names();

struct SyncPolicy {
  int workers = 1;                      // the first update waits until this many have joined
  int quorum = 0;                       // number of workers whose pushes make an update; 0: all present workers
  Nanoseconds grace = 0;                // how long an update with a quorum waits for the others
  std::int64_t staleness = kUnbounded;  // how many pushes ahead of the slowest a worker may begin
  Nanoseconds deadline = 0;             // limit of a worker's computing per step, with stalls; 0: no limit
  std::int64_t local_steps = 0;         // local steps between pushes; 0: the worker pushes gradients
  bool pushes_a_share = false;          // the worker instead pushes after its share of an epoch
  Payload payload = Payload::kGradients;
  Weigh weigh = Weigh::kTargets;
  Merge merge = Merge::kMean;

  friend bool operator==(const SyncPolicy&, const SyncPolicy&) = default;
};

// Returns the preset with the values of its paper. A value without one must be set: the deadline of "amb".
[[nodiscard]] SyncPolicy preset_policy(std::string_view name, int workers);
[[nodiscard]] const std::vector<std::string>& policy_names();

// Throws ConfigError for values that do not fit together; `where` begins the message.
void check_policy(const SyncPolicy& policy, std::string_view where);

}  // namespace sluice::ps
