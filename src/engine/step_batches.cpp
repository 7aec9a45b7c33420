// How TrainStep cuts batches into micro-batches.
#include <algorithm>

#include "core/check.h"
#include "core/divided_up.h"
#include "core/parts.h"
#include "engine/train_step.h"

namespace sluice::engine {

pipeline::MicroBatchParts TrainStep::parts_of(const StepBatch& batch) const {
  const Plan& plan = composition_.plan;
  const std::int64_t replicas = plan.replicas;
  return {.size = options_.micro_batch,
          .all = divided_up(batch.global_samples, options_.micro_batch),
          .parts = Parts(replicas * composition_.processes(), plan.shares),
          .first = replicas * composition_.sync->rank()};
}

// Micro-batches are as large as with equal shares, so that memory and their statistics stay as they are.
MicroBatches TrainStep::split_by_shares(const StepBatch& batch, int chunks) const {
  const Plan& plan = composition_.plan;
  const auto first = plan.shares.begin() + std::int64_t{plan.replicas} * composition_.sync->rank();
  const std::vector<int> own_shares(first, first + plan.replicas);
  const bool is_left_out = std::ranges::max(own_shares) == 0;
  const Parts parts(plan.replicas, is_left_out ? std::vector<int>() : own_shares);
  const std::int64_t replicas = std::ssize(plan.shares);
  const std::int64_t size = std::max<std::int64_t>(divided_up(batch.global_samples, replicas * chunks), 1);
  MicroBatches micro_batches;
  std::size_t most = chunks;
  for (std::int64_t r = 0; r < plan.replicas; ++r) {
    const NumberRange own = parts.range(batch.local.samples(), r);
    const auto count = static_cast<int>(std::max<std::int64_t>(divided_up(own.size(), size), 1));
    micro_batches.push_back(split(pipeline::part_of(batch.local, own.begin, own.end), count));
    most = std::max(most, micro_batches.back().size());
  }
  for (auto& of_replica : micro_batches)
    while (of_replica.size() < most) of_replica.push_back(pipeline::part_of(of_replica.back(), 0, 0));
  return micro_batches;
}

MicroBatches TrainStep::split_up(const StepBatch& batch, int chunks) const {
  MicroBatches micro_batches;
  if (options_.micro_batch == 0 && !composition_.plan.shares.empty()) return split_by_shares(batch, chunks);
  if (options_.micro_batch == 0) {
    for (const auto& share : pipeline::split(batch.local, composition_.plan.replicas))
      micro_batches.push_back(split(share, chunks));
    return micro_batches;
  }
  const pipeline::MicroBatchParts how = parts_of(batch);
  const std::int64_t first = std::min(how.of(0).begin * how.size, batch.global_samples);
  check(batch.first == first, "a share of whole micro-batches that begins where the processes before end");
  const auto most = static_cast<int>(how.parts.largest(how.all));
  micro_batches = deal_out(batch.local, how, composition_.plan.replicas, std::max(chunks, most));
  const auto& fields = options_.task->inputs();
  const auto mask = std::ranges::find(fields, options_.padding_mask);
  if (mask == fields.end()) return micro_batches;
  for (auto& of_replica : micro_batches) {
    for (pipeline::MicroBatch& own : of_replica) trim_padding(own, static_cast<std::size_t>(mask - fields.begin()));
  }
  return micro_batches;
}

pipeline::PassRequest TrainStep::request_for(MicroBatches micro_batches, pipeline::Schedule schedule) const {
  pipeline::PassRequest request{.schedule = std::move(schedule),
                                .loss = [task = options_.task](const auto& outputs, const auto& targets) {
                                  return task->loss(outputs, targets);
                                }};
  request.context.numerics = options_.numerics;
  request.context.seed = options_.seed;
  composition_.follow_frozen();
  request.features = composition_.features;
  request.micro_batches = std::move(micro_batches);
  request.splits_micro_batches = options_.micro_batch == 0;
  return request;
}

void TrainStep::sum_in_tree(pipeline::PassRequest& request, const pipeline::MicroBatchParts& how, bool takes_digests) {
  for (int r = 0; r < composition_.plan.replicas; ++r)
    request.tree.push_back({how.of(r), how.all, options_.rounds_to_bf16});
  digests_ = takes_digests ? std::make_shared<LayerDigests>(composition_, how.all) : nullptr;
  request.watch = digests_;
}

}  // namespace sluice::engine
