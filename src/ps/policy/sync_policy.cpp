#include "ps/policy/sync_policy.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/text.h"

namespace sluice::ps {
namespace {

constexpr std::int64_t kUsualStaleness = 3;
constexpr std::int64_t kUsualLocalSteps = 8;
constexpr std::int64_t kDiLoCoSteps = 500;

struct Preset {
  std::string name;
  SyncPolicy policy;
};

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all{
      {"bsp", {.staleness = 0}},
      {"ssp", {.quorum = 1, .staleness = kUsualStaleness}},
      {"asp", {.quorum = 1}},
      {"quorum", {}},  // the quorum depends on the number of workers
      {"fmb", {.staleness = 0}},
      {"amb", {.staleness = 0}},
      {"dual_batch",
       {.quorum = 1,
        .pushes_a_share = true,
        .payload = Payload::kWeights,
        .weigh = Weigh::kFactor,
        .merge = Merge::kHalf}},
      {"local_sgd", {.staleness = 0, .local_steps = kUsualLocalSteps, .payload = Payload::kWeights}},
      {"diloco",
       {.staleness = 0,
        .local_steps = kDiLoCoSteps,
        .payload = Payload::kDelta,
        .weigh = Weigh::kTargetsSquaredPerStep}},
  };
  return all;
}

constexpr std::array kMerges{Merge::kHalf, Merge::kBesides, Merge::kMean};  // in the order of merge_names()

}  // namespace

Merge merge_named(std::string_view name) {
  const auto found = std::ranges::find(merge_names(), name);
  if (found == merge_names().end())
    throw ConfigError("ps.merge=", name, " is unknown; give one of ", join(merge_names(), ", "));
  return kMerges.at(static_cast<std::size_t>(found - merge_names().begin()));
}

const std::vector<std::string>& merge_names() {
  static const std::vector<std::string> names{"half", "besides", "mean"};
  return names;
}

SyncPolicy preset_policy(std::string_view name, int workers) {
  const auto found = std::ranges::find(presets(), name, &Preset::name);
  if (found == presets().end())
    throw ConfigError("ps.policy=", name, " is unknown; give one of ", join(policy_names(), ", "));
  SyncPolicy policy = found->policy;
  policy.workers = workers;
  if (name == "quorum") policy.quorum = workers / 2 + 1;
  return policy;
}

const std::vector<std::string>& policy_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Preset& preset : presets()) all.push_back(preset.name);
    return all;
  }();
  return names;
}

void check_policy(const SyncPolicy& policy, std::string_view where) {
  const auto require = [&](bool holds, const auto&... sentence) {
    if (!holds) throw ConfigError(where, ": ", sentence...);
  };
  require(policy.workers >= 1, "there are ", policy.workers, " workers; at least 1 is needed");
  require(policy.quorum >= 0 && policy.quorum <= policy.workers, "ps.quorum=", policy.quorum,
          ", but ps.workers=", policy.workers, "; set a number from 1 to ", policy.workers, ", or 0 for all workers");
  require(policy.grace >= 0, "the grace window must be at least 0 s");
  require(policy.deadline >= 0, "the time limit must be at least 0 s");
  require(policy.staleness >= kUnbounded, "the staleness bound is ", policy.staleness,
          "; set 0 or more, or -1 for no bound");
  const bool trains_alone = policy.local_steps > 0 || policy.pushes_a_share;
  require(trains_alone == (policy.payload != Payload::kGradients),
          trains_alone ? "a worker with optimizer steps of its own pushes weights or their change, not gradients"
                       : "only a worker with optimizer steps of its own can push weights; set its local steps");
  require(policy.deadline == 0 || !trains_alone, "a time limit applies only to gradients, not to local steps");
  require(policy.weigh != Weigh::kTargetsSquaredPerStep || trains_alone,
          "weights of targets^2 / steps need local steps");
  const bool weighs_single_pushes = policy.weigh == Weigh::kFactor || policy.weigh == Weigh::kUniform;
  require(policy.merge == Merge::kMean || (policy.payload == Payload::kWeights && weighs_single_pushes),
          "only weights are merged one after the other, weighed by their factor or uniformly");
}

}  // namespace sluice::ps
