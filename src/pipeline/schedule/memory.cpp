#include "pipeline/schedule/memory.h"

#include "core/check.h"
#include "core/error.h"
#include "core/text.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/memory_trace.h"

namespace sluice::pipeline {

std::vector<std::int64_t> peak_bytes(const Schedule& schedule, std::span<const StageBytes> stages) {
  const MemoryTrace trace(schedule);
  std::vector<std::int64_t> peaks;
  for (int device = 0; device < static_cast<int>(schedule.devices.size()); ++device)
    peaks.push_back(trace.peak_bytes(device, stages));
  return peaks;
}

void require_bytes(const Schedule& schedule, std::span<const StageBytes> stages,
                   std::span<const std::int64_t> budgets) {
  check(budgets.size() == schedule.devices.size(), "one budget per device");
  const auto peaks = peak_bytes(schedule, stages);
  for (std::size_t device = 0; device < peaks.size(); ++device) {
    if (peaks[device] <= budgets[device]) continue;
    throw ConfigError("schedule '", schedule.name, "' needs ", human_bytes(static_cast<std::uint64_t>(peaks[device])),
                      " on device ", device, ", more than the ",
                      human_bytes(static_cast<std::uint64_t>(budgets[device])),
                      " available; choose one with fewer micro-batches in flight, or more stages");
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
    // Not divided, because one action runs at a time.
    stage.forward_working = whole.forward_working, stage.backward_working = whole.backward_working;
    stage.input_working = whole.input_working, stage.weight_working = whole.weight_working;
    stages.push_back(stage);
    has_first[device] = true;
  }
  return stages;
}

}  // namespace sluice::pipeline
