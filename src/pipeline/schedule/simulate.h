// simulate: the time that a schedule takes. A result that goes to another device arrives after the hop. Messages of one
// queue (source, target, payload) share its bandwidth; receive buffers are unlimited. Communication does not slow
// computation. Deterministic; all inputs and results use one unit of time.
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
  std::optional<double> backward = {};  // B; nullopt: input + weight
  double first_forward = 0;             // extra time of the stage's first F
  double first_backward = 0;            // extra time of its first B or I

  [[nodiscard]] double whole_backward() const { return backward.value_or(input + weight); }
};

struct Link {
  double latency = 0;                                               // of every hop between devices
  double bytes_per_time = std::numeric_limits<double>::infinity();  // of every queue; more than 0
};

struct Costs {
  std::vector<StepCost> stages;  // [stage]
  // [stage]: bytes of the activation it sends, and of the gradient that comes back; empty: no bytes.
  std::vector<double> sent_bytes;
  Link link;                // between any two devices
  std::vector<Link> links;  // [stage]: between it and the next one, instead of `link`; may be empty
  // [device][position]: factor on the time of an action, because of what else runs then; empty: 1.
  std::vector<std::vector<double>> stretch;
  // Part of an overlapped pair's shorter action that the longer one hides: 0 nothing, 1 all of it.
  double overlap = 0;
};

struct TimeSpan {
  double start = 0;
  double end = 0;
};

struct DeviceTimes {
  double start = 0;
  double end = 0;
  double busy = 0;
  double idle = 0;  // makespan - busy
};

struct Simulation {
  double makespan = 0;
  double bubble_fraction = 0;  // 1 - busy / (devices * makespan)
  // makespan - busy of the busiest device: time that a step with one optimizer step at its end loses.
  double barrier_bubble = 0;
  // Largest end - start - busy of a device: what zero-bubble papers report.
  double window_bubble = 0;
  std::vector<DeviceTimes> devices;
  std::vector<std::vector<TimeSpan>> spans;  // [device][position]; both parts of a pair have the pair's span
};

// Idle times within rounding errors are 0. Requires: a validated schedule; one cost per stage; finite times of at least
// 0. If a stage has only whole backwards and no `backward` cost, the sum of input and weight counts.
[[nodiscard]] Simulation simulate(const Schedule& schedule, const Costs& costs);

// working: [device], the stage that it works on or -1. stretches: [device], above 0, to set for devices that work.
using Stretching = std::function<void(std::span<const int> working, std::span<double> stretches)>;

class Simulator {
 public:
  // Requires: a validated schedule that outlives this object.
  explicit Simulator(const Schedule& schedule);

  [[nodiscard]] Simulation run(const Costs& costs) const;
  // Calls `stretching` whenever an action begins or ends; a pair counts as its first part. Ignores costs.stretch.
  [[nodiscard]] Simulation run(const Costs& costs, const Stretching& stretching) const;
  [[nodiscard]] const Schedule& schedule() const { return *schedule_; }

 private:
  struct Part {
    Op op = Op::kForward;
    bool is_first = false;   // first F of its stage, or first B or I
    bool is_paired = false;  // with the next one
    int device = 0;
    int stage = 0;
    int number = 0;   // among all actions, device by device
    int source = -1;  // number of the action whose result it receives; -1: none
    int border = -1;  // border between devices that its result crosses; -1: none
    int queue = -1;   // queue of its result; -1: none
  };

  class ChangingRun;

  static double seconds_alone(const Part& part, const Costs& costs);
  static double arrival(const Part& part, double made, const Costs& costs, double& queue_free_at);

  const Schedule* schedule_;
  std::vector<Part> parts_;  // in an order in which they can run
  std::size_t queues_ = 0;
};

// The stages of device d share `devices[d]`, the cost of a micro-batch through all of them, equally.
[[nodiscard]] std::vector<StepCost> share_costs(const Schedule& schedule, std::span<const StepCost> devices);

// A time as in tables and pictures, to ten digits: "28.5", "6321600", "1e+12".
[[nodiscard]] std::string number_text(double value);

}  // namespace sluice::pipeline
