// pass_request: what the executor is asked to run, and what it answers. Values.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/replica_sync.h"
#include "nn/flops.h"
#include "nn/layer.h"
#include "pipeline/micro_batch.h"
#include "pipeline/schedule/action.h"
#include "pipeline/stage.h"

namespace sluice::pipeline {

// One pass of a schedule over one mini-batch (training) or evaluation batch (context.training false).
struct PassRequest {
  Schedule schedule;
  std::vector<std::vector<MicroBatch>> micro_batches;  // [replica][micro-batch]; the same number in each replica
  nn::ForwardContext context;                          // sample_ids come from the micro-batches
  LossFunction loss;
  double gradient_scale = 1.0;  // 1 / samples of the global batch
  // Of synchronised batch-norm (context.batch_norm) with other processes: [device]; empty where there are none.
  std::vector<std::shared_ptr<comm::Communicator>> statistics;
  std::shared_ptr<comm::ReplicaSync> sync;  // told of complete gradients, by the schedule's REDUCE_GRADs; may be null
};

struct MicroBatchResult {
  at::Tensor loss;    // scalar, summed over the micro-batch; undefined when it is empty
  at::Tensor logits;  // [n, classes], on the last stage's device; undefined when it is empty
};
struct PassResult {
  std::vector<std::vector<MicroBatchResult>> micro_batches;  // [replica][micro-batch]
  nn::FlopCount flops{};                                     // of all stages and replicas, backward included
};

}  // namespace sluice::pipeline
