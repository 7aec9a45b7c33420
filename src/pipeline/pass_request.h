// pass_request: the input and the result of Executor::run().
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
#include "pipeline/pass_watch.h"
#include "pipeline/schedule/action.h"
#include "pipeline/stage.h"

namespace sluice::pipeline {

using ScoreFunction = std::function<at::Tensor(const Tensors& outputs, const Tensors& targets)>;

// Called in the stage's thread after each B, I or W, on the stream that wrote the gradient.
using AfterGradient = std::function<void(ReplicaId, const Stage&, const Action&)>;

struct PassRequest {
  Schedule schedule;
  std::vector<std::vector<MicroBatch>> micro_batches;  // [replica][micro-batch]; equally many in each replica
  nn::ForwardContext context;                          // its sample_ids come from the micro-batches
  LossFunction loss;
  ScoreFunction score;                           // may be null
  bool draws_failures = true;                    // logs the schedule with the failed action
  std::string less_memory{kLessTrainingMemory};  // advice for out of memory
  bool keep_logits = false;                      // in the result; otherwise they are freed after scoring
  double gradient_scale = 1.0;                   // 1 / targets of the global batch
  // [replica], training only: gradients are added in the order of a tree. Empty: as the schedule runs them. Requires:
  // the sync admits every micro-batch, and no `graphs`.
  std::vector<TreePart> tree = {};
  std::shared_ptr<PassWatch> watch = nullptr;  // with `tree`; may be null
  // [device]: for synchronised batch-norm with other processes; empty if there are none.
  std::vector<std::shared_ptr<comm::Communicator>> statistics_communicators;
  // Training only: decides which micro-batches may run and receives complete gradients. May be null.
  std::shared_ptr<comm::ReplicaSync> sync;
  std::shared_ptr<FeatureSource> features;
  // Over the devices that run frozen layers. False: each device runs whole micro-batches, with `features` sample by
  // sample, so that rounding depends on neither devices nor cached samples.
  bool splits_micro_batches = true;
  AfterGradient after_gradient;  // training only; may be null
  // From Executor::make_graphs(): records the pass, or runs what an earlier pass with the same schedule, loss, options
  // and shapes recorded. Requires: a training pass that runs every micro-batch. Null: runs directly.
  std::shared_ptr<PassGraphs> graphs;
};

// Tensors are on the last stage's device, and undefined if the micro-batch has not run.
struct MicroBatchResult {
  bool has_run = false;  // it has samples and the sync has admitted it
  at::Tensor loss;       // scalar, summed over the micro-batch
  at::Tensor score;      // if PassRequest::score is set
  at::Tensor logits;     // the first output, if PassRequest::keep_logits
};
struct PassResult {
  std::vector<std::vector<MicroBatchResult>> micro_batches;  // [replica][micro-batch]
  FlopCount flops{};                                         // of all stages and replicas, backward included
};

}  // namespace sluice::pipeline
