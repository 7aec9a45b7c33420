// simulate: what a schedule costs. Devices run their lists without gaps other than waiting for results; a result that
// goes to another device arrives after the hop. Deterministic; any one unit of time for all inputs and results.
// Not here: bytes held (memory.h), and what communication takes away from computation on the same device.
// Messages of one queue (source, target, payload) share its bandwidth one after another; queues do not slow each other,
// and receive buffers are as many as needed.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

// Times per micro-batch.
struct StepCost {
  double forward = 1;
  double input = 1;                     // I
  double weight = 1;                    // W
  std::optional<double> backward = {};  // B; nothing: input + weight
  double first_forward = 0;             // more, of the stage's first F,
  double first_backward = 0;            // and of its first B or I

  [[nodiscard]] double whole_backward() const { return backward.value_or(input + weight); }
};

struct Link {
  double latency = 0;                                               // of every hop between devices
  double bytes_per_time = std::numeric_limits<double>::infinity();  // of every queue; more than 0
};

struct Costs {
  std::vector<StepCost> stages;    // [stage]
  std::vector<double> sent_bytes;  // [stage]: of the activation it sends on, and of the gradient that comes back; may
                                   // be empty: nothing
  Link link;                       // between any two devices
  std::vector<Link> links;         // [stage]: between it and the next one, instead of `link`; may be empty
  // [device][position]: how many times as long an action takes, because of what else runs then; may be empty: 1
  std::vector<std::vector<double>> stretch;
  double overlap = 0;  // of the shorter part of an overlapped pair, what the longer one hides: 0 nothing, 1 all of it
};

struct TimeSpan {
  double start = 0;
  double end = 0;
};

struct DeviceTimes {
  double start = 0;  // of its first action
  double end = 0;    // of its last one
  double busy = 0;
  double idle = 0;  // makespan - busy
};

struct Simulation {
  double makespan = 0;
  double bubble_fraction = 0;  // 1 - busy / (devices * makespan)
  // makespan - busy of the busiest device: what a step with one optimizer step at its end loses
  double barrier_bubble = 0;
  double window_bubble = 0;  // largest end - start - busy of a device: what zero-bubble papers report
  std::vector<DeviceTimes> devices;
  std::vector<std::vector<TimeSpan>> spans;  // [device][position]; both parts of a pair have the pair's span
};

// A bubble or an idle time that is only what rounding leaves of the makespan is 0.
// Requires: a validated schedule; a cost per stage; finite times of at least 0. Of the input and weight of a stage
// whose backwards are all whole, only the sum counts, if there is no `backward`.
[[nodiscard]] Simulation simulate(const Schedule& schedule, const Costs& costs);

// How many times as long actions take by what else runs. working: [device], the stage that it works on, -1: it waits;
// stretches: [device], more than 0, to be set for those that work.
using Stretching = std::function<void(std::span<const int> working, std::span<double> stretches)>;

// The same for many costs of one schedule: the order, and who waits for whom, do not depend on them and are found once.
class Simulator {
 public:
  // Requires: a validated schedule, which outlives this.
  explicit Simulator(const Schedule& schedule);

  [[nodiscard]] Simulation run(const Costs& costs) const;
  // With speeds that change whenever an action begins or ends. Of a pair the first part's stage is told. Not read:
  // costs.stretch.
  [[nodiscard]] Simulation run(const Costs& costs, const Stretching& stretching) const;
  [[nodiscard]] const Schedule& schedule() const { return *schedule_; }

 private:
  // An action.
  struct Part {
    Op op = Op::kForward;
    bool is_first = false;   // of its stage's F, or of its B and I
    bool is_paired = false;  // with the next one
    int device = 0;
    int stage = 0;
    int number = 0;   // among all actions, device after device
    int source = -1;  // the number of the action whose result it receives; -1: none
    int border = -1;  // that its result crosses to another device,
    int queue = -1;   // and the queue that it takes; -1: it stays
  };

  class ChangingRun;

  static double seconds_alone(const Part& part, const Costs& costs);
  static double arrival(const Part& part, double made, const Costs& costs, double& queue_free_at);

  const Schedule* schedule_;
  std::vector<Part> parts_;  // in an order in which they can run
  std::size_t queues_ = 0;
};

// Costs of stages from those of devices: `devices[d]` is for one micro-batch through all stages of device d, in equal
// shares. Requires: a validated schedule; one entry per device.
[[nodiscard]] std::vector<StepCost> share_costs(const Schedule& schedule, std::span<const StepCost> devices);

// A time as tables and pictures show it, to ten digits: "28.5", "6321600", "1e+12".
[[nodiscard]] std::string number_text(double value);

}  // namespace sluice::pipeline
