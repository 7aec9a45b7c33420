// pass_request: what the executor is asked to run, and what it answers. Values.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/replica_sync.h"
#include "core/flops.h"
#include "nn/layer.h"
#include "pipeline/action_graphs.h"
#include "pipeline/failure.h"
#include "pipeline/feature_source.h"
#include "pipeline/micro_batch.h"
#include "pipeline/schedule/action.h"
#include "pipeline/stage.h"

namespace sluice::pipeline {

// What else a caller makes of a micro-batch's logits than its loss: a tensor on their device, without waiting for it.
using ScoreFunction = std::function<at::Tensor(const at::Tensor& logits, const at::Tensor& targets)>;

// Called after each action that has added to the gradient of a stage (B, I or W), by the
// stage's own thread, on the stream that wrote it, before another action of the stage.
using AfterGradient = std::function<void(ReplicaId, const Stage&, const Action&)>;

// One pass of a schedule over one mini-batch (training) or evaluation batch (context.training false).
struct PassRequest {
  Schedule schedule;
  std::vector<std::vector<MicroBatch>> micro_batches;  // [replica][micro-batch]; the same number in each replica
  nn::ForwardContext context;                          // sample_ids come from the micro-batches
  nn::LossFunction loss;
  ScoreFunction score;                           // may be null
  bool draws_failures = true;                    // into the log: where in the schedule it failed
  std::string less_memory{kLessTrainingMemory};  // what to do where there is too little
  bool keep_logits = false;                      // in the result; else they go when their micro-batch has been scored
  double gradient_scale = 1.0;                   // 1 / targets of the global batch
  // Of synchronised batch-norm (context.numerics) with other processes: [device]; empty where there are none.
  std::vector<std::shared_ptr<comm::Communicator>> statistics_communicators;
  // Of a training pass: asked which micro-batches may run, told of complete gradients. May be null.
  std::shared_ptr<comm::ReplicaSync> sync;
  // Keeps what frozen layers make of samples; null: nothing is kept.
  std::shared_ptr<FeatureSource> features;
  AfterGradient after_gradient;  // of a training pass; null: nobody asks
  // Of Executor::make_graphs(): the pass records its actions there, or runs what an earlier one has recorded, whose
  // schedule, loss, options and shapes it has. Of a training pass that runs every micro-batch; null: it runs plainly.
  std::shared_ptr<PassGraphs> graphs;
};

// On the last stage's device; all undefined where the micro-batch has not run.
struct MicroBatchResult {
  bool has_run = false;  // it has samples, and the sync has admitted it
  at::Tensor loss;       // scalar, summed over the micro-batch
  at::Tensor score;      // where it was asked for
  at::Tensor logits;     // [n, classes]; where they are kept
};
struct PassResult {
  std::vector<std::vector<MicroBatchResult>> micro_batches;  // [replica][micro-batch]
  FlopCount flops{};                                         // of all stages and replicas, backward included
};

}  // namespace sluice::pipeline
