// What holds for every schedule, shape and cost: soundness, memory that comes back, text that comes back, and makespans
// within the bounds for unequal devices.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/holds.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/shapes.h"
#include "pipeline/schedule/simulate.h"
#include "pipeline/schedule/validate.h"

namespace sluice::pipeline {
namespace {

using test::NamedShape;

TEST(Property, EverySmallShapeIsValidAndRoundTrips) {
  int shapes = 0;
  test::for_each_shape(9, 21, 4, [&](const NamedShape& shape) {
    const Schedule schedule = shape.make();
    ASSERT_NO_THROW(validate(schedule)) << shape.text();
    ASSERT_NO_THROW(validate(with_reductions(schedule))) << shape.text();
    ASSERT_EQ(parse_schedule(draw(schedule)), schedule) << shape.text();
    EXPECT_EQ(schedule.name, shape.name);
    EXPECT_EQ(schedule.stages, shape.shape.stages * shape.virtual_stages());
    ++shapes;
  });
  EXPECT_GT(shapes, 2000);
}

// What is in flight and what is stashed, counted from intervals instead of running sums.
void expect_peaks_of_intervals(const Schedule& schedule) {
  const auto peaks = peak_in_flight(schedule);
  const auto stashes = peak_stash(schedule);
  for (std::size_t device = 0; device < schedule.devices.size(); ++device) {
    std::vector<test::Hold> in_flight;
    std::vector<test::Hold> stashed;
    for (const auto& [of, life] : test::lives_of(schedule.devices[device])) {
      ASSERT_LT(life.forward, life.gradient);
      ASSERT_LE(life.gradient, life.release);
      in_flight.push_back({life.forward, life.release});
      if (life.release != life.gradient) stashed.push_back({life.gradient, life.release});
    }
    EXPECT_EQ(peaks[device], test::most_at_once(in_flight));
    EXPECT_EQ(stashes[device], test::most_at_once(stashed));
  }
}

struct DeviceCosts {
  std::vector<StepCost> devices;
  double sum = 0;            // of all devices
  double slowest = 0;        // of one device
  double forward = 0;        // largest
  double backward = 0;       // largest
  double lower_of_1f1b = 0;  // max over s of m*T_s + sum of T_k, k < s
};

DeviceCosts draw_costs(test::Draw& draw_of, const PipelineShape& shape, bool in_proportion) {
  DeviceCosts costs;
  for (int device = 0; device < shape.stages; ++device) {
    StepCost cost = draw_of.cost();
    if (in_proportion) cost.input = cost.weight = cost.forward;
    const double total = cost.forward + cost.input + cost.weight;
    costs.lower_of_1f1b = std::max(costs.lower_of_1f1b, shape.micro_batches * total + costs.sum);
    costs.sum += total;
    costs.slowest = std::max(costs.slowest, total);
    costs.forward = std::max(costs.forward, cost.forward);
    costs.backward = std::max(costs.backward, cost.input + cost.weight);
    costs.devices.push_back(cost);
  }
  return costs;
}

// gpipe: sum(F+B) + (m-1)(max F + max B), exactly. 1f1b, B in proportion to F:
//   max over s of (m*T_s + sum of T_k over k < s) <= makespan <= sum(T) + (m-1) max T.
void expect_bounds(const NamedShape& shape, const DeviceCosts& costs, double makespan, bool in_proportion) {
  const double more = shape.shape.micro_batches - 1;
  const double slack = 1e-9 * makespan;
  EXPECT_GE(makespan, shape.shape.micro_batches * costs.slowest - slack);
  if (shape.name == "gpipe") {
    EXPECT_NEAR(makespan, costs.sum + more * (costs.forward + costs.backward), slack);
  }
  if (shape.name == "1f1b") {
    EXPECT_LE(makespan, costs.sum + more * costs.slowest + slack);
    if (in_proportion) {
      EXPECT_GE(makespan, costs.lower_of_1f1b - slack);
    }
  }
}

TEST(Property, UnequalDevicesStayWithinTheBounds) {
  test::Draw draw_of(17);
  for (int trial = 0; trial < 1800; ++trial) {
    const auto& name = schedule_names()[static_cast<std::size_t>(trial) % schedule_names().size()];
    const NamedShape shape = draw_of.shape(name, 8, 24);
    SCOPED_TRACE(shape.text());
    const Schedule schedule = shape.make();
    ASSERT_NO_THROW(validate(schedule));
    expect_peaks_of_intervals(schedule);
    const bool in_proportion = draw_of.between(0, 1) == 0;
    const DeviceCosts costs = draw_costs(draw_of, shape.shape, in_proportion);
    const Costs of_stages{.stages = share_costs(schedule, costs.devices), .sent_bytes = {}, .link = {}};
    const Simulation result = simulate(schedule, of_stages);
    expect_bounds(shape, costs, result.makespan, in_proportion);

    double busy = 0;
    for (std::size_t device = 0; device < costs.devices.size(); ++device) {
      const StepCost& cost = costs.devices[device];
      const DeviceTimes& times = result.devices[device];
      EXPECT_NEAR(times.busy, shape.shape.micro_batches * (cost.forward + cost.input + cost.weight), 1e-9 * times.busy);
      EXPECT_NEAR(times.busy + times.idle, result.makespan, 1e-9 * result.makespan);
      EXPECT_LE(times.end - times.start - times.busy, result.window_bubble + 1e-9 * result.makespan);
      busy += times.busy;
    }
    EXPECT_NEAR(result.bubble_fraction, 1 - busy / (static_cast<double>(costs.devices.size()) * result.makespan),
                1e-12);
  }
}

// Makes one thing take longer.
void raise_one(test::Draw& draw_of, Costs& costs) {
  auto& stage = costs.stages[static_cast<std::size_t>(draw_of.between(0, static_cast<int>(costs.stages.size()) - 1))];
  auto& sent =
      costs.sent_bytes[static_cast<std::size_t>(draw_of.between(0, static_cast<int>(costs.sent_bytes.size()) - 1))];
  switch (draw_of.between(0, 6)) {
    case 0: stage.forward += 1; break;
    case 1: stage.input += 1; break;
    case 2: stage.weight += 1; break;
    case 3: costs.link.latency += 0.1; break;
    case 4: sent += 10; break;
    case 5: costs.link.bytes_per_time /= 2; break;
    default: costs.overlap /= 2; break;
  }
}

// More time for anything never makes a fixed order shorter, whatever it is.
TEST(Property, TheMakespanGrowsWithEveryCost) {
  test::Draw draw_of(23);
  for (int trial = 0; trial < 1800; ++trial) {
    const auto& name = schedule_names()[static_cast<std::size_t>(trial) % schedule_names().size()];
    const Schedule schedule = draw_of.shape(name, 6, 12).make();
    Costs costs = test::even_costs(schedule, draw_of.cost(), draw_of.time(0, 1));
    costs.sent_bytes.assign(static_cast<std::size_t>(schedule.stages), draw_of.time(0, 10));
    costs.link.bytes_per_time = 20;
    costs.overlap = draw_of.time(0, 1);
    const double before = simulate(schedule, costs).makespan;
    raise_one(draw_of, costs);
    EXPECT_GE(simulate(schedule, costs).makespan, before * (1 - 1e-12)) << schedule.name;
  }
}

TEST(Property, BadShapesAreRefusedInOneSentence) {
  const auto message_of = [](const std::string& name, const PipelineShape& shape) -> std::string {
    try {
      (void)make_schedule(name, shape);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  for (const auto& name : schedule_names()) {
    EXPECT_EQ(message_of(name, {.stages = 0, .micro_batches = 4}), "pipeline.stages=0; set it to at least 1");
    EXPECT_EQ(message_of(name, {.stages = 2, .micro_batches = 0}),
              "pipeline.chunks=0; a step needs at least 1 micro-batch");
    EXPECT_NE(message_of(name, {.stages = 2, .micro_batches = 8, .virtual_stages = 0}), "accepted") << name;
  }
  EXPECT_EQ(message_of("zb-v", {.stages = 2, .micro_batches = 8, .virtual_stages = 3}),
            "schedule 'zb-v' takes 2 stages per device, not 3; leave out --virtual (pipeline.virtual), or choose "
            "interleaved or looped-bfs");
  EXPECT_EQ(message_of("dualpipe-v", {.stages = 3, .micro_batches = 5}),
            "schedule 'dualpipe-v' on 3 devices needs at least 6 chunks (micro-batches), not 5");
}

}  // namespace
}  // namespace sluice::pipeline
