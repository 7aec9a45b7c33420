#include "pipeline/schedule/simulate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/check.h"
#include "pipeline/schedule/action_index.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/progress.h"

namespace sluice::pipeline {
namespace {

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

void check_costs(const Schedule& schedule, const Costs& costs) {
  check(static_cast<int>(costs.stages.size()) == schedule.stages, "one cost per stage");
  check(costs.sent_bytes.empty() || static_cast<int>(costs.sent_bytes.size()) == schedule.stages,
        "sent bytes of every stage or none");
  check(costs.links.empty() || static_cast<int>(costs.links.size()) == schedule.stages,
        "a link of every stage or none");
  check(costs.link.bytes_per_time > 0 &&
            std::ranges::all_of(costs.links, [](const Link& link) { return link.bytes_per_time > 0; }),
        "bandwidths of more than 0");
}

Simulation measure(const Schedule& schedule, std::vector<std::vector<TimeSpan>> spans) {
  Simulation result;
  result.spans = std::move(spans);
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

double seconds_of_pair(double first, double second, double overlap) {
  return first + second - overlap * std::min(first, second);
}

std::vector<double> flattened(const std::vector<std::vector<double>>& by_device) {
  std::vector<double> all;
  for (const auto& of_device : by_device) all.insert(all.end(), of_device.begin(), of_device.end());
  return all;
}

std::vector<std::vector<TimeSpan>> by_device(const Schedule& schedule, const std::vector<TimeSpan>& spans) {
  std::vector<std::vector<TimeSpan>> all;
  auto from = spans.begin();
  for (const auto& actions : schedule.devices) {
    const auto to = from + static_cast<std::ptrdiff_t>(actions.size());
    all.emplace_back(from, to);
    from = to;
  }
  return all;
}

}  // namespace

Simulator::Simulator(const Schedule& schedule) : schedule_(&schedule) {
  const ActionIndex index(schedule);
  std::vector<std::size_t> offsets;  // [device]
  std::size_t count = 0;
  for (const auto& actions : schedule.devices) offsets.push_back(std::exchange(count, count + actions.size()));
  std::map<std::tuple<int, int, Payload>, int> queues;
  std::set<std::pair<StageId, bool>> begun;  // stages whose first F (false), or first B or I (true), is over
  const auto is_first = [&](const Action& action) {
    const bool is_backward = makes_input_gradient(action.op);
    return (action.op == Op::kForward || is_backward) && begun.emplace(action.stage, is_backward).second;
  };
  const auto number = [&](ActionPosition at) { return static_cast<int>(offsets[at.device]) + at.position; };
  for_each_in_order(schedule, index, [&](ActionPosition unit) {
    const auto& actions = schedule.devices[unit.device];
    const std::size_t end = unit_end(actions, static_cast<std::size_t>(unit.position));
    for (ActionPosition at = unit; at.position < static_cast<int>(end); ++at.position) {
      const Action& action = actions[at.position];
      Part part{.op = action.op,
                .is_first = is_first(action),
                .is_paired = static_cast<int>(end) > at.position + 1,
                .device = at.device,
                .stage = sluice::index(action.stage),
                .number = number(at)};
      if (const ActionPosition source = index.source(action)) part.source = number(source);
      const ActionPosition receiver = index.receiver(action);
      if (receiver && receiver.device != at.device) {
        const Payload payload = ActionIndex::payload(action);
        // A gradient has the size of its activation and takes the same link back.
        part.border = part.stage - (payload == Payload::kGradient ? 1 : 0);
        part.queue =
            queues.try_emplace({at.device, receiver.device, payload}, static_cast<int>(queues.size())).first->second;
      }
      parts_.push_back(part);
    }
  });
  queues_ = queues.size();
}

double Simulator::arrival(const Part& part, double made, const Costs& costs, double& queue_free_at) {
  const Link& link = costs.links.empty() ? costs.link : costs.links[part.border];
  if (costs.sent_bytes.empty()) return made + link.latency;
  queue_free_at = std::max(queue_free_at, made) + costs.sent_bytes[part.border] / link.bytes_per_time;
  return queue_free_at + link.latency;
}

double Simulator::seconds_alone(const Part& part, const Costs& costs) {
  const StepCost& stage = costs.stages[part.stage];
  switch (part.op) {
    case Op::kForward: return stage.forward + (part.is_first ? stage.first_forward : 0);
    case Op::kBackward: return stage.whole_backward() + (part.is_first ? stage.first_backward : 0);
    case Op::kInputGradient: return stage.input + (part.is_first ? stage.first_backward : 0);
    case Op::kWeightGradient: return stage.weight;
    case Op::kReduceGradient: return 0;
  }
  return 0;
}

Simulation Simulator::run(const Costs& costs) const {
  check_costs(*schedule_, costs);
  std::vector<TimeSpan> spans(parts_.size());
  std::vector<double> arrivals(parts_.size());  // of the result at its receiver
  std::vector<double> queue_free_at(queues_, 0.0);
  std::vector<double> free_at(schedule_->devices.size(), 0.0);
  const std::vector<double> stretch = flattened(costs.stretch);
  const auto seconds = [&](const Part& part) {
    const double alone = seconds_alone(part, costs);
    return stretch.empty() ? alone : alone * stretch[part.number];
  };
  for (std::size_t begin = 0; begin < parts_.size();) {
    const Part& first = parts_[begin];
    const std::size_t end = begin + (first.is_paired ? 2 : 1);
    double start = free_at[first.device];
    for (std::size_t i = begin; i < end; ++i)
      if (parts_[i].source >= 0) start = std::max(start, arrivals[parts_[i].source]);
    double duration = seconds(first);
    if (first.is_paired) duration = seconds_of_pair(duration, seconds(parts_[begin + 1]), costs.overlap);
    const double over = free_at[first.device] = start + duration;
    for (; begin < end; ++begin) {
      const Part& part = parts_[begin];
      spans[part.number] = {start, over};
      arrivals[part.number] = part.queue < 0 ? over : arrival(part, over, costs, queue_free_at[part.queue]);
    }
  }
  return measure(*schedule_, by_device(*schedule_, spans));
}

// Runs event by event: an action begins or ends, or a result arrives.
class Simulator::ChangingRun {
 public:
  ChangingRun(const Simulator& simulator, const Costs& costs)
      : parts_(simulator.parts_),
        costs_(costs),
        devices_(simulator.schedule_->devices.size()),
        working_(devices_.size(), kWaits),
        stretches_(devices_.size(), 1.0),
        spans_(parts_.size()),
        arrivals_(parts_.size(), std::numeric_limits<double>::infinity()),
        queue_free_at_(simulator.queues_, 0.0) {
    for (std::size_t begin = 0; begin < parts_.size(); begin += parts_[begin].is_paired ? 2 : 1)
      devices_[parts_[begin].device].units.push_back(begin);
  }

  std::vector<TimeSpan> run(const Stretching& stretching) && {
    while (true) {
      for (std::size_t d = 0; d < devices_.size(); ++d) begin_if_ready(d);
      stretching(working_, stretches_);
      const double next = next_event();
      if (next == std::numeric_limits<double>::infinity()) return std::move(spans_);
      for (std::size_t d = 0; d < devices_.size(); ++d) advance(d, next);
      now_ = next;
    }
  }

 private:
  static constexpr int kWaits = -1;

  struct Device {
    std::vector<std::size_t> units;  // first position in parts_ of each unit: an action or a pair
    std::size_t done = 0;
    double start = 0;  // of the running unit
    double left = 0;   // remaining work of the running unit
  };

  [[nodiscard]] std::size_t end_of(std::size_t begin) const { return begin + (parts_[begin].is_paired ? 2 : 1); }

  // When all known inputs of its next unit have arrived.
  [[nodiscard]] double ready_at(const Device& device) const {
    if (device.done == device.units.size()) return std::numeric_limits<double>::infinity();
    const std::size_t begin = device.units[device.done];
    double ready = 0;
    for (std::size_t i = begin; i < end_of(begin); ++i)
      if (parts_[i].source >= 0) ready = std::max(ready, arrivals_[parts_[i].source]);
    return ready;
  }

  void begin_if_ready(std::size_t d) {
    Device& device = devices_[d];
    if (working_[d] != kWaits || ready_at(device) > now_) return;
    const Part& first = parts_[device.units[device.done]];
    working_[d] = first.stage;
    device.start = now_;
    device.left = seconds_alone(first, costs_);
    if (first.is_paired)
      device.left = seconds_of_pair(device.left, seconds_alone(*(&first + 1), costs_), costs_.overlap);
  }

  [[nodiscard]] double end_at(std::size_t d) const { return now_ + devices_[d].left * stretches_[d]; }

  [[nodiscard]] double next_event() const {
    double next = std::numeric_limits<double>::infinity();
    for (std::size_t d = 0; d < devices_.size(); ++d)
      next = std::min(next, working_[d] == kWaits ? ready_at(devices_[d]) : end_at(d));
    return next;
  }

  void advance(std::size_t d, double until) {
    if (working_[d] == kWaits) return;
    Device& device = devices_[d];
    if (end_at(d) > until) {
      device.left = std::max(0.0, device.left - (until - now_) / stretches_[d]);
      return;
    }
    const std::size_t begin = device.units[device.done++];
    for (std::size_t i = begin; i < end_of(begin); ++i) {
      const Part& part = parts_[i];
      spans_[part.number] = {device.start, until};
      arrivals_[part.number] = part.queue < 0 ? until : arrival(part, until, costs_, queue_free_at_[part.queue]);
    }
    working_[d] = kWaits;
  }

  const std::vector<Part>& parts_;
  const Costs& costs_;
  std::vector<Device> devices_;
  std::vector<int> working_;       // [device]: the stage, or kWaits
  std::vector<double> stretches_;  // [device]
  std::vector<TimeSpan> spans_;    // [number]
  std::vector<double> arrivals_;   // [number]
  std::vector<double> queue_free_at_;
  double now_ = 0;
};

Simulation Simulator::run(const Costs& costs, const Stretching& stretching) const {
  check_costs(*schedule_, costs);
  return measure(*schedule_, by_device(*schedule_, ChangingRun(*this, costs).run(stretching)));
}

Simulation simulate(const Schedule& schedule, const Costs& costs) { return Simulator(schedule).run(costs); }

std::vector<StepCost> share_costs(const Schedule& schedule, std::span<const StepCost> devices) {
  check(devices.size() == schedule.devices.size(), "one cost per device");
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
