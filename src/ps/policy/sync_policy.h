// sync_policy: when pushes become an update, how far workers may be apart, and what each push weighs: one set of values
// of which the known ways to train with a parameter server are points:
//   bsp, fmb    an update takes one push of every worker (bulk synchronous; fixed mini-batch)
//   amb         as fmb, but a worker stops computing after a time (Ferdinand et al., ICLR 2019: anytime mini-batch)
//   ssp         every push is an update; nobody is more than s pushes ahead of the slowest (Ho et al., NeurIPS 2013)
//   asp         every push is an update, nobody waits
//   quorum      an update takes pushes of K workers, and of those that come within a grace window
//   dual_batch  every push is weights, mixed in by the factor of its batch size (Lu et al., COMPSAC 2022)
//   local_sgd   weights after H steps of their own, averaged by targets
//   diloco      as local_sgd, but their movement is the gradient of an outer Nesterov step (Douillard et al., 2023)
// Not here: what it decides (coordinator.h), the numbers of a merge (mix.h). Values. Errors: ConfigError.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "ps/policy/push_record.h"

namespace sluice::ps {

inline constexpr std::int64_t kUnbounded = -1;

// What a push counts for beside the others of its update.
enum class Weigh {
  kTargets,                // by what it has trained on
  kUniform,                // as much as any
  kFactor,                 // by PushRecord::factor
  kTargetsSquaredPerStep,  // targets^2 / local steps: how much, and in how large batches (Decoupled DiLoCo, 2026)
};

// What becomes of pushed weights. Gradients go through the server's optimizer, and deltas through its outer one.
enum class Merge {
  kMean,     // the weighted mean takes their place
  kHalf,     // one after the other: W <- ((2 - f) W + f w) / 2, as in COMPSAC 2022
  kBesides,  // one after the other: W <- (W + f w) / (1 + f), as in their journal version
};
// "half", "besides" or "mean".
[[nodiscard]] Merge merge_named(std::string_view name);
[[nodiscard]] const std::vector<std::string>& merge_names();

struct SyncPolicy {
  int workers = 1;                      // the first update waits until so many are there
  int quorum = 0;                       // workers whose pushes make an update; 0: all that are there
  Nanoseconds grace = 0;                // that an update then still waits for the others
  std::int64_t staleness = kUnbounded;  // pushes that a worker may be ahead of the slowest when it begins
  Nanoseconds deadline = 0;             // of a worker's computing in a step, stalls included; 0: none
  std::int64_t local_steps = 0;         // of its own that a worker does between pushes; 0: it pushes gradients
  bool pushes_a_share = false;          // it pushes after its share of an epoch instead
  Payload payload = Payload::kGradients;
  Weigh weigh = Weigh::kTargets;
  Merge merge = Merge::kMean;

  friend bool operator==(const SyncPolicy&, const SyncPolicy&) = default;
};

// As listed above, with the values that their papers have. Those without one are to be set: the deadline of "amb".
[[nodiscard]] SyncPolicy preset_policy(std::string_view name, int workers);
[[nodiscard]] const std::vector<std::string>& policy_names();

// ConfigError for values that do not go together; `where` begins the message.
void check_policy(const SyncPolicy& policy, std::string_view where);

}  // namespace sluice::ps
