// The generators with two stages per device in a V: device r owns stages r (down) and 2p-1-r (up). The last device
// turns the pipeline round without a hop, and the first one has the loss.
#include <algorithm>
#include <deque>

#include "pipeline/schedule/generator_shape.h"

namespace sluice::pipeline {
namespace {

struct VDevice {
  int device = 0;
  int devices = 1;
  int micro_batches = 1;

  [[nodiscard]] int down() const { return device; }
  [[nodiscard]] int up() const { return 2 * devices - 1 - device; }
  [[nodiscard]] int behind() const { return devices - 1 - device; }
};

template <typename Fill>
Schedule in_a_v(std::string_view name, const PipelineShape& shape, Fill fill) {
  require_shape(shape);
  require_virtual_stages(name, shape, 2);
  return fill_devices(name, shape, 2, [&](DeviceActions& actions, int device) {
    fill(actions, VDevice{device, shape.stages, shape.micro_batches});
  });
}

void split_backward(DeviceActions& actions, int stage) {
  actions.input_gradient(stage);
  actions.weight_gradient(stage);
}

void zb_v_warm_up(DeviceActions& actions, const VDevice& v) {
  for (int i = 0; i < 2 * v.behind() + 1; ++i) actions.forward(v.down());
  for (int i = 0; i < v.device; ++i) {
    actions.forward(v.up());
    actions.forward(v.down());
  }
  for (int i = 0; i < v.behind() + 1; ++i) {
    actions.forward(v.up());
    split_backward(actions, v.up());
  }
}

void zb_v_cool_down(DeviceActions& actions, const VDevice& v, int micro_batches) {
  for (int i = 0; i < v.device; ++i) {
    actions.input_gradient(v.down());
    actions.input_gradient(v.up());
  }
  for (int i = 0; i < v.behind() + 1; ++i) split_backward(actions, v.down());
  while (actions.weights(v.up()) < micro_batches) actions.weight_gradient(v.up());
  while (actions.weights(v.down()) < micro_batches) actions.weight_gradient(v.down());
}

// B and I of DualPipeV share one order, and W's come in the order of the I's of all stages.
class DualActions {
 public:
  DualActions(DeviceActions& actions, const VDevice& v) : actions_(actions), v_(v) {}

  void fill() {
    warm_up();
    main_phase();
    cool_down();
  }

 private:
  void input_gradient(int stage) {
    waiting_.push_back({stage, actions_.backwards(stage)});
    actions_.input_gradient(stage);
  }

  void weight_gradient() {
    if (waiting_.empty()) return;
    actions_.add(Op::kWeightGradient, waiting_.front().stage, waiting_.front().micro_batch);
    waiting_.pop_front();
  }

  void backward(int stage, bool split) {
    if (split) return input_gradient(stage);
    actions_.backward(stage);
  }

  void warm_up() {
    for (int i = 0; i < 2 * v_.behind(); ++i) actions_.forward(v_.down());
    for (int i = 0; i <= v_.device; ++i) {
      actions_.forward(v_.down());
      actions_.forward(v_.up());
    }
    for (int i = 0; i < v_.behind(); ++i) {
      input_gradient(v_.up());
      weight_gradient();
      actions_.forward(v_.up());
    }
  }

  void main_phase() {
    const bool is_last = v_.behind() == 0;
    for (int i = 0; i < v_.micro_batches - 2 * v_.devices + v_.device + 1; ++i) {
      if (i == 0 && is_last) {  // without overlap, because the forward need not wait for the backward's input
        actions_.forward(v_.down());
        actions_.backward(v_.up());
      } else {
        actions_.overlapped(v_.down(), v_.up());
      }
      actions_.overlapped(v_.up(), v_.down());
    }
  }

  void cool_down() {
    for (int i = 0; i < v_.behind(); ++i) {
      actions_.backward(v_.up());
      actions_.overlapped(v_.up(), v_.down());
    }
    // Splits the second half of the remaining backwards into I and W, so that W's fill the bubble at the end.
    const int whole = v_.device + 1;
    for (int i = 0; i < 2 * (v_.device + 1); ++i) backward(i % 2 == 0 ? v_.up() : v_.down(), i >= whole);
    for (int i = 0; i < v_.behind(); ++i) {
      weight_gradient();
      input_gradient(v_.down());
    }
    while (!waiting_.empty()) weight_gradient();
  }

  struct Waiting {
    int stage;
    int micro_batch;
  };

  DeviceActions& actions_;
  const VDevice& v_;
  std::deque<Waiting> waiting_;
};

}  // namespace

Schedule make_zb_v(const PipelineShape& shape) {
  return in_a_v("zb-v", shape, [](DeviceActions& actions, const VDevice& v) {
    // Made for at least 2p-1 micro-batches; DeviceActions skips those that a shorter step does not have.
    const int micro_batches = std::max(2 * v.devices - 1, v.micro_batches);
    zb_v_warm_up(actions, v);
    const int warm_forwards = 2 * v.behind() + 1 + v.device;
    const int steady = micro_batches - v.device - (v.behind() + 1);
    for (int i = 0; i < steady; ++i) {
      if (warm_forwards + i < micro_batches) actions.forward(v.down());
      split_backward(actions, v.down());
      actions.forward(v.up());
      split_backward(actions, v.up());
    }
    zb_v_cool_down(actions, v, micro_batches);
  });
}

Schedule make_dualpipe_v(const PipelineShape& shape) {
  const int least = least_micro_batches("dualpipe-v", shape.stages);
  if (shape.stages >= 1 && shape.micro_batches >= 1 && shape.micro_batches < least) {
    throw ConfigError("schedule 'dualpipe-v' on ", shape.stages, " devices needs at least ", least,
                      " chunks (micro-batches), not ", shape.micro_batches);
  }
  return in_a_v("dualpipe-v", shape, [](DeviceActions& actions, const VDevice& v) { DualActions(actions, v).fill(); });
}

}  // namespace sluice::pipeline
