// action_graphs: recorded work (device/graph.h) of the actions of training passes: one graph for each forward, loss,
// backward and weight gradient of a stage and micro-batch. The first pass records each action and then launches its
// graph; later passes launch the graphs in the same order.
// Values that differ between passes are copied to fixed memory: inputs, targets and gradients before an action, sample
// ids once per micro-batch, the step number and the gradient scale once per pass. Outputs are copied before they leave
// a stage.
// Host code runs only while an action is recorded, so reports of gradients, spans and messages stay outside of the
// graphs. engine/step_graphs.h decides which passes are alike.
// Threads: during a pass, the graphs of a slot belong to the slot's thread. Errors: ConfigError if an action cannot be
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

// A part of an action that is one graph; a forward on the last stage has two parts.
enum class ActionPart { kForward, kLoss, kBackward, kWeightGradient };

using Tensors = std::vector<at::Tensor>;

class ActionGraphs {
 public:
  ActionGraphs(std::unique_ptr<device::GraphSequence> sequence, device::Device device)
      : sequence_(std::move(sequence)), device_(device) {}

  // Call before the first action of each pass. Requires: the previous pass ran all of its actions.
  void begin(std::int64_t step, double gradient_scale, int micro_batches);
  // True during the first pass.
  [[nodiscard]] bool records() const { return records_; }
  // Fixed memory that the recorded work reads.
  [[nodiscard]] const at::Tensor& step() const { return step_; }                      // [1] int64
  [[nodiscard]] const at::Tensor& gradient_scale() const { return gradient_scale_; }  // [1] float64
  // Copies `ids` to the micro-batch's fixed memory and returns that memory.
  [[nodiscard]] at::Tensor keep_sample_ids(MicroBatchId micro_batch, const at::Tensor& ids);

  // Returns the outputs of `work`; their memory is reused by the next action. A recorded action launches its graph
  // instead of calling `work`. Requires: every pass runs the same actions in the same order, with inputs of the same
  // shapes and the same inputs undefined.
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
  std::vector<Recorded> recorded_;  // in execution order
  std::size_t next_ = 0;            // position in recorded_ of the pass's next action
  bool records_ = true;
};

// [slot]
using PassGraphs = std::vector<std::unique_ptr<ActionGraphs>>;

}  // namespace sluice::pipeline
