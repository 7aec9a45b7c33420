#include "pipeline/schedule/memory.h"

#include <algorithm>
#include <set>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "pipeline/schedule/inspect.h"

namespace sluice::pipeline {
namespace {

class Held {
 public:
  explicit Held(bool trains) : trains_(trains) {}

  void own(const StageBytes& stage) { add(stage.fixed); }

  void run(Op op, const StageBytes& stage) {
    switch (op) {
      case Op::kForward:
        reach(stage.forward_working);
        add(stage.activation);
        if (!trains_) now_ -= stage.activation;
        break;
      case Op::kBackward:
        reach(stage.backward_working);
        now_ -= stage.activation;
        break;
      case Op::kInputGradient:
        reach(stage.input_working);
        add(stage.stash - stage.activation);
        break;
      case Op::kWeightGradient:
        reach(stage.weight_working);
        now_ -= stage.stash;
        break;
      case Op::kReduceGradient: break;
    }
  }

  [[nodiscard]] std::int64_t peak() const { return peak_; }

 private:
  void add(std::int64_t bytes) {
    now_ += bytes;
    reach(0);
  }
  void reach(std::int64_t working) { peak_ = std::max(peak_, now_ + working); }

  bool trains_;
  std::int64_t now_ = 0;
  std::int64_t peak_ = 0;
};

}  // namespace

std::int64_t peak_bytes_of(const Schedule& schedule, int device, std::span<const StageBytes> stages) {
  check(static_cast<int>(stages.size()) == schedule.stages, "bytes of every stage");
  Held held(!is_forward_only(schedule));
  std::set<StageId> owned;
  const auto& actions = schedule.devices[static_cast<std::size_t>(device)];
  for (const auto& action : actions) {
    if (owned.insert(action.stage).second) held.own(stages[static_cast<std::size_t>(index(action.stage))]);
  }
  for (const auto& action : actions) held.run(action.op, stages[static_cast<std::size_t>(index(action.stage))]);
  return held.peak();
}

std::vector<std::int64_t> peak_bytes(const Schedule& schedule, std::span<const StageBytes> stages) {
  std::vector<std::int64_t> peaks;
  for (int device = 0; device < static_cast<int>(schedule.devices.size()); ++device)
    peaks.push_back(peak_bytes_of(schedule, device, stages));
  return peaks;
}

void require_bytes(const Schedule& schedule, std::span<const StageBytes> stages,
                   std::span<const std::int64_t> budgets) {
  check(budgets.size() == schedule.devices.size(), "a budget per device");
  const auto peaks = peak_bytes(schedule, stages);
  for (std::size_t device = 0; device < peaks.size(); ++device) {
    if (peaks[device] <= budgets[device]) continue;
    throw ConfigError(concat("schedule '", schedule.name, "' needs ",
                             human_bytes(static_cast<std::uint64_t>(peaks[device])), " on device ", device,
                             ", more than the ", human_bytes(static_cast<std::uint64_t>(budgets[device])),
                             " there are; choose one with fewer micro-batches in flight, or more stages"));
  }
}

std::vector<StageBytes> share_bytes(const Schedule& schedule, std::span<const StageBytes> devices) {
  check(devices.size() == schedule.devices.size(), "bytes of every device");
  const auto counts = stages_per_device(schedule);
  std::vector<bool> has_first(devices.size(), false);
  std::vector<StageBytes> stages;
  for (const int owner : stage_owners(schedule)) {
    const auto device = static_cast<std::size_t>(owner);
    const auto share = [&](std::int64_t whole) {
      return whole / counts[device] + (has_first[device] ? 0 : whole % counts[device]);
    };
    const StageBytes& whole = devices[device];
    StageBytes stage{.fixed = share(whole.fixed), .activation = share(whole.activation), .stash = share(whole.stash)};
    // One action runs at a time.
    stage.forward_working = whole.forward_working, stage.backward_working = whole.backward_working;
    stage.input_working = whole.input_working, stage.weight_working = whole.weight_working;
    stages.push_back(stage);
    has_first[device] = true;
  }
  return stages;
}

}  // namespace sluice::pipeline
