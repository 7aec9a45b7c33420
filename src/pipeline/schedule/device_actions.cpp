#include "pipeline/schedule/device_actions.h"

namespace sluice::pipeline {

void DeviceActions::add(Op op, int stage, int micro_batch) {
  if (micro_batch < micro_batches_)
    actions_.push_back({op, static_cast<StageId>(stage), static_cast<MicroBatchId>(micro_batch)});
}

void DeviceActions::forward(int stage) { add(Op::kForward, stage, of_stage_[stage].forwards++); }

void DeviceActions::backward(int stage) {
  Counts& counts = of_stage_[stage];
  add(Op::kBackward, stage, counts.backwards++);
  ++counts.weights;
}

void DeviceActions::input_gradient(int stage) { add(Op::kInputGradient, stage, of_stage_[stage].backwards++); }
void DeviceActions::weight_gradient(int stage) { add(Op::kWeightGradient, stage, of_stage_[stage].weights++); }

void DeviceActions::overlapped(int forward_stage, int backward_stage) {
  const std::size_t first = actions_.size();
  forward(forward_stage);
  backward(backward_stage);
  if (actions_.size() == first + 2) actions_[first].overlaps_next = true;
}

}  // namespace sluice::pipeline
