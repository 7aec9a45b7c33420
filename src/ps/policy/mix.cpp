#include "ps/policy/mix.h"

#include <algorithm>

namespace sluice::ps {
namespace {

double weight_of(Weigh weigh, const PushRecord& record) {
  const auto targets = static_cast<double>(record.targets);
  switch (weigh) {
    case Weigh::kTargets: return targets;
    case Weigh::kUniform: return 1;
    case Weigh::kFactor: return record.factor;
    case Weigh::kTargetsSquaredPerStep:
      return targets * (targets / static_cast<double>(std::max<std::int64_t>(record.local_steps, 1)));
  }
  return 0;
}

// Weighted mean. A summed gradient is first divided by its targets, which cancels if the weights are targets.
Mix mean_of(const SyncPolicy& policy, const std::vector<PushRecord>& records, const std::vector<std::size_t>& used) {
  const bool sums = policy.payload == Payload::kGradients;
  Mix mix{.divisor = 0};
  for (const std::size_t push : used) {
    const double weight = weight_of(policy.weigh, records[push]);
    const bool cancels = policy.weigh == Weigh::kTargets;
    const double of_sum = cancels ? 1 : weight / static_cast<double>(records[push].targets);
    mix.parts.push_back({push, sums ? of_sum : weight});
    mix.divisor += weight;
  }
  return mix;
}

Mix one_beside(const SyncPolicy& policy, const std::vector<PushRecord>& records, std::size_t push) {
  const double factor = policy.weigh == Weigh::kFactor ? records[push].factor : 1;
  const bool is_half = policy.merge == Merge::kHalf;
  return {.keep = is_half ? 2 - factor : 1, .parts = {{push, factor}}, .divisor = is_half ? 2 : 1 + factor};
}

}  // namespace

std::vector<Mix> mixes_of(const SyncPolicy& policy, const std::vector<PushRecord>& records) {
  std::vector<std::size_t> used;
  for (std::size_t push = 0; push < records.size(); ++push) {
    if (records[push].targets > 0) used.push_back(push);
  }
  if (used.empty()) return {};
  if (policy.payload != Payload::kWeights || policy.merge == Merge::kMean) return {mean_of(policy, records, used)};
  std::vector<Mix> mixes;
  for (const std::size_t push : used) mixes.push_back(one_beside(policy, records, push));
  return mixes;
}

}  // namespace sluice::ps
