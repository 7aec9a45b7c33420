#include "pipeline/schedule/simulate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <utility>

#include "core/check.h"
#include "pipeline/schedule/action_index.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/progress.h"

namespace sluice::pipeline {
namespace {

class Clockwork {
 public:
  Clockwork(const Schedule& schedule, const ActionIndex& index, const Costs& costs)
      : schedule_(schedule),
        index_(index),
        costs_(costs),
        free_at_(schedule.devices.size(), 0.0),
        has_gone_(static_cast<std::size_t>(schedule.stages)) {
    for (const auto& actions : schedule.devices) {
      spans_.emplace_back(actions.size());
      arrivals_.emplace_back(actions.size(), 0.0);
    }
  }

  void run(ActionPosition unit) {
    const auto device = static_cast<std::size_t>(unit.device);
    const auto& actions = schedule_.devices[device];
    const auto begin = static_cast<std::size_t>(unit.position);
    const std::size_t end = unit_end(actions, begin);
    double start = free_at_[device];
    for (std::size_t i = begin; i < end; ++i) start = std::max(start, input_ready(unit.device, actions[i]));
    double duration = cost(device, begin);
    if (end == begin + 2) {
      const double other = cost(device, begin + 1);
      duration += other - costs_.overlap * std::min(duration, other);
    }
    free_at_[device] = start + duration;
    for (std::size_t i = begin; i < end; ++i) {
      spans_[device][i] = {start, free_at_[device]};
      arrivals_[device][i] = send(unit.device, actions[i], free_at_[device]);
    }
  }

  [[nodiscard]] std::vector<std::vector<TimeSpan>> take() && { return std::move(spans_); }

 private:
  double cost(std::size_t device, std::size_t position) {
    const double alone = cost_alone(schedule_.devices[device][position]);
    return costs_.stretch.empty() ? alone : alone * costs_.stretch[device][position];
  }

  double cost_alone(const Action& action) {
    const auto at = static_cast<std::size_t>(index(action.stage));
    const StepCost& stage = costs_.stages[at];
    auto& [forward, backward] = has_gone_[at];
    switch (action.op) {
      case Op::kForward: return stage.forward + (std::exchange(forward, true) ? 0 : stage.first_forward);
      case Op::kBackward: return stage.whole_backward() + (std::exchange(backward, true) ? 0 : stage.first_backward);
      case Op::kInputGradient: return stage.input + (std::exchange(backward, true) ? 0 : stage.first_backward);
      case Op::kWeightGradient: return stage.weight;
      case Op::kReduceGradient: return 0;
    }
    return 0;
  }

  [[nodiscard]] double input_ready(int device, const Action& action) const {
    const ActionPosition source = index_.source(action);
    if (!source) return 0;
    const auto from = static_cast<std::size_t>(source.device);
    const auto at = static_cast<std::size_t>(source.position);
    return source.device == device ? spans_[from][at].end : arrivals_[from][at];
  }

  // When the result of `action`, made at `made`, is at its receiver.
  double send(int device, const Action& action, double made) {
    const ActionPosition receiver = index_.receiver(action);
    if (!receiver || receiver.device == device) return made;
    const Payload payload = ActionIndex::payload(action);
    // A gradient is as large as the activation that went the other way, and takes the same link.
    const int border = index(action.stage) - (payload == Payload::kGradient ? 1 : 0);
    const Link& link = costs_.links.empty() ? costs_.link : costs_.links[static_cast<std::size_t>(border)];
    if (costs_.sent_bytes.empty()) return made + link.latency;
    double& queue_free_at = queue_free_at_[{std::pair(device, receiver.device), payload}];
    queue_free_at =
        std::max(queue_free_at, made) + costs_.sent_bytes[static_cast<std::size_t>(border)] / link.bytes_per_time;
    return queue_free_at + link.latency;
  }

  const Schedule& schedule_;
  const ActionIndex& index_;
  const Costs& costs_;
  // A stage's first forward and first backward.
  struct HasGone {
    bool forward = false;
    bool backward = false;
  };

  std::vector<double> free_at_;                // [device]
  std::vector<HasGone> has_gone_;              // [stage]
  std::vector<std::vector<TimeSpan>> spans_;   // [device][position]
  std::vector<std::vector<double>> arrivals_;  // [device][position]: of the result at another device
  std::map<std::pair<std::pair<int, int>, Payload>, double> queue_free_at_;
};

// Times are sums of many terms: of two that are equal but for rounding, the difference is 0.
double without_noise(double difference, double of) {
  constexpr double kNoise = 1e-12;
  return std::abs(difference) < kNoise * of ? 0 : difference;
}

DeviceTimes times_of(const std::vector<Action>& actions, const std::vector<TimeSpan>& spans) {
  DeviceTimes times{spans.front().start, spans.back().end, 0, 0};
  for (std::size_t begin = 0; begin < actions.size(); begin = unit_end(actions, begin))
    times.busy += spans[begin].end - spans[begin].start;
  return times;
}

}  // namespace

Simulation simulate(const Schedule& schedule, const Costs& costs) {
  check(static_cast<int>(costs.stages.size()) == schedule.stages, "a cost per stage");
  check(costs.sent_bytes.empty() || static_cast<int>(costs.sent_bytes.size()) == schedule.stages,
        "bytes sent by every stage");
  check(costs.links.empty() || static_cast<int>(costs.links.size()) == schedule.stages, "a link for every stage");
  check(costs.link.bytes_per_time > 0 &&
            std::ranges::all_of(costs.links, [](const Link& link) { return link.bytes_per_time > 0; }),
        "a bandwidth of more than 0");
  const ActionIndex index(schedule);
  Clockwork clockwork(schedule, index, costs);
  for_each_in_order(schedule, index, [&](ActionPosition unit) { clockwork.run(unit); });

  Simulation result;
  result.spans = std::move(clockwork).take();
  double most_busy = 0;
  double busy = 0;
  for (std::size_t device = 0; device < schedule.devices.size(); ++device) {
    const DeviceTimes times = times_of(schedule.devices[device], result.spans[device]);
    result.makespan = std::max(result.makespan, times.end);
    result.window_bubble = std::max(result.window_bubble, times.end - times.start - times.busy);
    most_busy = std::max(most_busy, times.busy);
    busy += times.busy;
    result.devices.push_back(times);
  }
  for (auto& times : result.devices) times.idle = without_noise(result.makespan - times.busy, result.makespan);
  result.barrier_bubble = without_noise(result.makespan - most_busy, result.makespan);
  result.window_bubble = without_noise(result.window_bubble, result.makespan);
  if (result.makespan > 0) {
    const double all = static_cast<double>(schedule.devices.size()) * result.makespan;
    result.bubble_fraction = without_noise(1 - busy / all, 1);
  }
  return result;
}

std::vector<StepCost> share_costs(const Schedule& schedule, std::span<const StepCost> devices) {
  check(devices.size() == schedule.devices.size(), "a cost per device");
  const auto counts = stages_per_device(schedule);
  std::vector<StepCost> stages;
  for (const int owner : stage_owners(schedule)) {
    const double share = counts[static_cast<std::size_t>(owner)];
    const StepCost& whole = devices[static_cast<std::size_t>(owner)];
    stages.push_back({whole.forward / share, whole.input / share, whole.weight / share});
  }
  return stages;
}

std::string number_text(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.10g", value);
  return text.data();
}

}  // namespace sluice::pipeline
