// action_graphs: runs the actions of training passes as recorded work (device/graph.h): one graph for each forward,
// loss, backward and weight gradient of a stage and micro-batch. The first pass records each action and then launches
// its graph; later passes launch the graphs in the same order.
// Values that differ between passes are copied to fixed memory: inputs, targets and gradients before an action, sample
// ids once per micro-batch, the step number and the gradient scale once per pass. Host code runs only while an action
// is recorded, so reports of gradients, spans and messages stay outside of the graphs. engine/step_graphs.h decides
// which passes are alike. Errors: ConfigError if an action cannot be recorded.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/flops.h"
#include "device/graph.h"
#include "pipeline/action_runner.h"

namespace sluice::pipeline {

class ActionGraphs final : public ActionRunner {
 public:
  ActionGraphs(std::unique_ptr<device::GraphSequence> sequence, device::Device device)
      : sequence_(std::move(sequence)), device_(device) {}

  // Requires: the previous pass ran all of its actions.
  void begin_pass(const PassValues& values) override;
  void begin_gradients(Stage& stage) const override { stage.begin_gradients_in_place(); }
  // Launches the graph of the action instead of calling `work`, except to record it. Requires: every pass runs the same
  // actions in the same order, with inputs of the same shapes and the same inputs undefined.
  [[nodiscard]] Tensors run(const Action& action, ActionPart part, const Tensors& inputs,
                            const device::GraphWork& work) override;
  [[nodiscard]] at::Tensor lasting(const at::Tensor& output) const override {
    return output.defined() ? output.clone() : output;
  }
  // A CUDA graph cannot call the sync.
  [[nodiscard]] GradientReady within(const GradientReady& /*reports*/) const override { return {}; }
  void report_after(const Stage& stage, const GradientReady& reports) const override {
    if (reports) stage.report_gradients(reports);
  }
  void prepare(StagePass& pass, ActionMarks* /*marks*/) const override { pass.context.step_in_memory = step_; }
  [[nodiscard]] GradientScale gradient_scale() const override { return {.in_memory = gradient_scale_}; }
  // Copies `ids` to the micro-batch's fixed memory and returns that memory.
  [[nodiscard]] at::Tensor sample_ids(MicroBatchId micro_batch, const at::Tensor& ids) override;
  [[nodiscard]] bool is_recording() const override { return records_; }

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
  // Fixed memory that the recorded work reads.
  at::Tensor step_;                 // [1] int64
  at::Tensor gradient_scale_;       // [1] float64
  Tensors sample_ids_;              // [micro-batch]
  std::vector<Recorded> recorded_;  // in execution order
  std::size_t next_ = 0;            // position in recorded_ of the pass's next action
  bool records_ = true;             // in the first pass
};

// [slot]; during a pass, the graphs of a slot belong to the slot's thread.
using PassGraphs = std::vector<std::unique_ptr<ActionGraphs>>;

}  // namespace sluice::pipeline
