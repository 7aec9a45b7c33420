#include "pipeline/schedule/inspect.h"

#include <algorithm>

namespace sluice::pipeline {
namespace {

bool is_forward(const Action& action) { return action.op == Op::kForward; }

int peak_of(const std::vector<Action>& actions) {
  int live = 0;
  int peak = 0;
  for (const auto& action : actions) {
    switch (action.op) {
      case Op::kForward: ++live; break;
      case Op::kBackward: --live; break;
    }
    peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace

bool is_forward_only(const Schedule& schedule) {
  return std::ranges::all_of(schedule.devices,
                             [](const auto& actions) { return std::ranges::all_of(actions, is_forward); });
}

std::vector<int> stage_owners(const Schedule& schedule) {
  std::vector<int> owners(static_cast<std::size_t>(schedule.stages), -1);
  for (std::size_t device = 0; device < schedule.devices.size(); ++device) {
    for (const auto& action : schedule.devices[device]) {
      owners.at(static_cast<std::size_t>(index(action.stage))) = static_cast<int>(device);
    }
  }
  return owners;
}

std::vector<int> peak_in_flight(const Schedule& schedule) {
  const bool keeps = !is_forward_only(schedule);
  std::vector<int> peaks;
  peaks.reserve(schedule.devices.size());
  for (const auto& actions : schedule.devices) {
    peaks.push_back(keeps ? peak_of(actions) : static_cast<int>(!actions.empty()));
  }
  return peaks;
}

}  // namespace sluice::pipeline
