// How TrainStep cuts batches into micro-batches.
#include <algorithm>

#include "core/check.h"
#include "core/divided_up.h"
#include "core/parts.h"
#include "engine/train_step.h"

namespace sluice::engine {

pipeline::MicroBatchParts TrainStep::parts_of(const StepBatch& batch) const {
  const std::int64_t replicas = composition_.plan.replicas;
  return {.size = options_.micro_batch,
          .all = divided_up(batch.global_samples, options_.micro_batch),
          .parts = replicas * composition_.processes(),
          .first = replicas * composition_.sync->rank()};
}

MicroBatches TrainStep::split_up(const StepBatch& batch, int chunks) const {
  MicroBatches micro_batches;
  if (options_.micro_batch == 0) {
    for (const auto& share : pipeline::split(batch.local, composition_.plan.replicas))
      micro_batches.push_back(split(share, chunks));
    return micro_batches;
  }
  const pipeline::MicroBatchParts how = parts_of(batch);
  const std::int64_t first = std::min(part_begin(how.all, how.parts, how.first) * how.size, batch.global_samples);
  check(batch.first == first, "a share of whole micro-batches that begins where the processes before end");
  const auto most = static_cast<int>(divided_up(how.all, how.parts));
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
    request.tree.push_back({part_range(how.all, how.parts, how.first + r), how.all, options_.rounds_to_bf16});
  digests_ = takes_digests ? std::make_shared<LayerDigests>(composition_, how.all) : nullptr;
  request.watch = digests_;
}

}  // namespace sluice::engine
