#include "pipeline/schedule/generators.h"

#include <algorithm>
#include <array>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"

namespace sluice::pipeline {
namespace {

struct Generator {
  std::string_view name;
  Schedule (*make)(PipelineShape);
};
constexpr std::array kGenerators{Generator{"gpipe", make_gpipe}, Generator{"1f1b", make_1f1b}};

// Writes the actions of one stage; each operation takes its micro-batches in order.
class StageOrder {
 public:
  explicit StageOrder(int stage) : stage_(static_cast<StageId>(stage)) {}

  void forward() { actions_.push_back({Op::kForward, stage_, static_cast<MicroBatchId>(forwards_++)}); }
  void backward() { actions_.push_back({Op::kBackward, stage_, static_cast<MicroBatchId>(backwards_++)}); }
  [[nodiscard]] std::vector<Action> take() && { return std::move(actions_); }

 private:
  StageId stage_;
  int forwards_ = 0;
  int backwards_ = 0;
  std::vector<Action> actions_;
};

template <typename Fill>
Schedule one_stage_per_device(std::string_view name, PipelineShape shape, Fill fill) {
  if (shape.stages < 1) throw ConfigError(concat("pipeline.stages=", shape.stages, "; set it to at least 1"));
  if (shape.micro_batches < 1) {
    throw ConfigError(concat("pipeline.chunks=", shape.micro_batches, "; a step needs at least 1 micro-batch"));
  }
  Schedule schedule{std::string(name), shape.stages, shape.micro_batches, {}};
  for (int stage = 0; stage < shape.stages; ++stage) {
    StageOrder order(stage);
    fill(order, stage);
    schedule.devices.push_back(std::move(order).take());
  }
  return schedule;
}

}  // namespace

Schedule make_gpipe(PipelineShape shape) {
  return one_stage_per_device("gpipe", shape, [&](StageOrder& order, int) {
    for (int i = 0; i < shape.micro_batches; ++i) order.forward();
    for (int i = 0; i < shape.micro_batches; ++i) order.backward();
  });
}

Schedule make_1f1b(PipelineShape shape) {
  return one_stage_per_device("1f1b", shape, [&](StageOrder& order, int stage) {
    const int warm_up = std::min(shape.micro_batches, shape.stages - 1 - stage);
    for (int i = 0; i < warm_up; ++i) order.forward();
    for (int i = warm_up; i < shape.micro_batches; ++i) {
      order.forward();
      order.backward();
    }
    for (int i = 0; i < warm_up; ++i) order.backward();
  });
}

Schedule make_forward_only(PipelineShape shape) {
  return one_stage_per_device("forward_only", shape, [&](StageOrder& order, int) {
    for (int i = 0; i < shape.micro_batches; ++i) order.forward();
  });
}

Schedule make_schedule(std::string_view name, PipelineShape shape) {
  for (const auto& generator : kGenerators) {
    if (generator.name == name) return generator.make(shape);
  }
  throw ConfigError(concat("pipeline.schedule='", name, "' is unknown; choose one of: ", join(schedule_names(), ", ")));
}

std::span<const std::string> schedule_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> list;
    list.reserve(kGenerators.size());
    for (const auto& generator : kGenerators) list.emplace_back(generator.name);
    return list;
  }();
  return kNames;
}

}  // namespace sluice::pipeline
