#include "pipeline/schedule/inspect.h"

#include <algorithm>

namespace sluice::pipeline {
namespace {

// The highest partial sum of `change(op)` over the actions.
template <typename Change>
int highest_sum(const std::vector<Action>& actions, Change change) {
  int sum = 0;
  int peak = 0;
  for (const auto& action : actions) {
    sum += change(action.op);
    peak = std::max(peak, sum);
  }
  return peak;
}

int change_in_flight(Op op) {
  switch (op) {
    case Op::kForward: return 1;
    case Op::kBackward:
    case Op::kWeightGradient: return -1;
    case Op::kInputGradient:
    case Op::kReduceGradient: return 0;
  }
  return 0;
}

int change_of_stash(Op op) {
  if (op == Op::kInputGradient) return 1;
  return op == Op::kWeightGradient ? -1 : 0;
}

template <typename Predicate>
bool any_action(const Schedule& schedule, Predicate predicate) {
  return std::ranges::any_of(schedule.devices,
                             [&](const auto& actions) { return std::ranges::any_of(actions, predicate); });
}

}  // namespace

bool is_forward_only(const Schedule& schedule) {
  return !any_action(schedule, [](const Action& action) { return action.op != Op::kForward; });
}

bool splits_backward(const Schedule& schedule) {
  return any_action(schedule, [](const Action& action) { return action.op == Op::kInputGradient; });
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

std::vector<int> stages_per_device(const Schedule& schedule) {
  std::vector<int> counts(schedule.devices.size(), 0);
  for (const int owner : stage_owners(schedule)) {
    if (owner >= 0) ++counts[static_cast<std::size_t>(owner)];
  }
  return counts;
}

int most_stages_per_device(const Schedule& schedule) {
  const auto counts = stages_per_device(schedule);
  return counts.empty() ? 0 : *std::ranges::max_element(counts);
}

std::vector<int> peak_in_flight(const Schedule& schedule) {
  const bool keeps = !is_forward_only(schedule);
  std::vector<int> peaks;
  peaks.reserve(schedule.devices.size());
  for (const auto& actions : schedule.devices) {
    peaks.push_back(keeps ? highest_sum(actions, change_in_flight) : static_cast<int>(!actions.empty()));
  }
  return peaks;
}

std::vector<int> peak_stash(const Schedule& schedule) {
  std::vector<int> peaks;
  peaks.reserve(schedule.devices.size());
  for (const auto& actions : schedule.devices) peaks.push_back(highest_sum(actions, change_of_stash));
  return peaks;
}

}  // namespace sluice::pipeline
