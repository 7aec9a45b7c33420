// action_graphs: the actions of training passes as recorded work (device/graph.h), one graph for each forward, loss,
// backward and weight gradient of a stage and micro-batch. The first pass records each of them when its turn comes and
// then runs it; those that follow run them in the same order. What differs from pass to pass is copied to fixed memory:
// inputs, targets and gradients before an action, sample ids once a micro-batch, the number of the step and the scale
// of the gradient once a pass. What leaves a stage is copied from there.
// Host work is done when an action is recorded, and not again: reports of gradients, spans and messages stay outside.
// Not here: which passes are alike (engine/step_graphs.h).
// Threads: the graphs of a slot belong to its thread during a pass. Errors: ConfigError where an action cannot be
// recorded.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/flops.h"
#include "core/ids.h"
#include "device/graph.h"
#include "nn/layer.h"
#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

// What an action does on its device; a forward on the last stage has two parts.
enum class ActionPart { kForward, kLoss, kBackward, kWeightGradient };

using Tensors = std::vector<at::Tensor>;

// Of one slot.
class ActionGraphs {
 public:
  ActionGraphs(std::unique_ptr<device::GraphSequence> sequence, device::Device device)
      : sequence_(std::move(sequence)), device_(device) {}

  // Before the first action of each pass. Requires: the pass before it has run all of its actions.
  void begin(std::int64_t step, double gradient_scale, int micro_batches);
  // The pass that runs is the first one.
  [[nodiscard]] bool records() const { return records_; }
  // Where recorded work reads them.
  [[nodiscard]] const at::Tensor& step() const { return step_; }                      // [1] int64
  [[nodiscard]] const at::Tensor& gradient_scale() const { return gradient_scale_; }  // [1] float64
  // `ids` in the micro-batch's fixed memory.
  [[nodiscard]] at::Tensor keep_sample_ids(MicroBatchId micro_batch, const at::Tensor& ids);

  // What `work` gives: its memory is used again in the next action. `work` is not called again where the action has
  // been recorded. Requires: as in the pass before, in its order, shapes and what is undefined.
  [[nodiscard]] const Tensors& run(const Action& action, ActionPart part, const Tensors& inputs,
                                   const device::GraphWork& work);

 private:
  struct Recorded {
    Action action;
    ActionPart part;
    std::unique_ptr<device::Graph> graph;
    std::shared_ptr<FlopCount> flops;
  };
  [[nodiscard]] Recorded record(const Action& action, ActionPart part, const Tensors& inputs,
                                const device::GraphWork& work) const;

  std::unique_ptr<device::GraphSequence> sequence_;
  device::Device device_;
  at::Tensor step_, gradient_scale_;
  Tensors sample_ids_;              // [micro-batch]
  std::vector<Recorded> recorded_;  // in the order of the pass
  std::size_t next_ = 0;            // in the pass that runs
  bool records_ = true;
};

// [slot]
using PassGraphs = std::vector<std::unique_ptr<ActionGraphs>>;

}  // namespace sluice::pipeline
