// simulate() against the closed forms of the literature and of the reference notes (docs/reference/schedules.md), to
// 1e-9. p devices, m micro-batches, v stages a device; F, I, W of a device; B = I + W, T = F + B; c the hop.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/shapes.h"
#include "pipeline/schedule/simulate.h"

namespace sluice::pipeline {
namespace {

using test::even_costs;
using test::NamedShape;
using test::shape_of;

constexpr double kTolerance = 1e-9;
const std::vector<StepCost> kEqual{{1, 1, 1}, {0.7, 0.7, 0.7}};
const std::vector<StepCost> kUnequal{{1, 1, 1}, {1, 1.2, 0.8}, {2, 3, 2}, {1, 0.3, 2.5}, {3, 1, 0.5}, {0.5, 2, 2}};

struct Form {
  double barrier;
  double window;
};

void expect_form(const NamedShape& shape, const StepCost& cost, const Form& form) {
  SCOPED_TRACE(shape.text() + " F=" + std::to_string(cost.forward) + " I=" + std::to_string(cost.input) +
               " W=" + std::to_string(cost.weight));
  const Schedule schedule = shape.make();
  const Simulation result = simulate(schedule, even_costs(schedule, cost));
  const double work = shape.shape.micro_batches * (cost.forward + cost.input + cost.weight);
  EXPECT_NEAR(result.makespan, work + form.barrier, kTolerance * result.makespan);
  EXPECT_NEAR(result.barrier_bubble, form.barrier, kTolerance * result.makespan);
  EXPECT_NEAR(result.window_bubble, form.window, kTolerance * result.makespan);
  EXPECT_NEAR(result.bubble_fraction, form.barrier / (work + form.barrier), kTolerance);
  for (const auto& device : result.devices) EXPECT_NEAR(device.idle, form.barrier, kTolerance * result.makespan);
}

const std::vector<int> kStages{1, 2, 3, 4, 5, 8};
const std::vector<int> kMicroBatches{1, 2, 3, 4, 6, 8, 13, 16, 32};

TEST(ClosedForms, GpipeAnd1f1bAndEagerLoseTheSame) {
  for (const std::string name : {"gpipe", "1f1b", "eager-1f1b"}) {
    for (const int p : kStages) {
      for (const int m : kMicroBatches) {
        for (const auto& cost : kUnequal) {
          const double bubble = (p - 1) * (cost.forward + cost.input + cost.weight);
          expect_form(shape_of(name, p, m), cost, {bubble, bubble});
        }
      }
    }
  }
}

TEST(ClosedForms, VirtualStagesDivideTheBubble) {
  for (const int p : kStages) {
    for (const int v : {1, 2, 3, 4}) {
      for (const auto& cost : kUnequal) {
        const double per_stage = (cost.forward + cost.input + cost.weight) / v;
        const double bubble = (p - 1) * per_stage;
        for (const int rounds : {1, 2, 3, 7})
          expect_form(shape_of("interleaved", p, p * rounds, v), cost, {bubble, bubble});
        // With m < p the first device waits p - m stages each time round.
        for (const int m : kMicroBatches) {
          const double looped = (p - 1 + (v - 1) * std::max(0, p - m)) * per_stage;
          expect_form(shape_of("looped-bfs", p, m, v), cost, {looped, looped});
        }
      }
    }
  }
}

TEST(ClosedForms, LoopedBfsLosesMoreWithFewerMicroBatchesThanDevices) {
  const auto bubble = [](int m) {
    const Schedule schedule = make_looped_bfs({.stages = 4, .micro_batches = m, .virtual_stages = 2});
    return simulate(schedule, even_costs(schedule, {1, 1, 1})).barrier_bubble;
  };
  EXPECT_NEAR(bubble(1), 9, kTolerance);
  EXPECT_NEAR(bubble(3), 6, kTolerance);
  EXPECT_NEAR(bubble(4), 4.5, kTolerance);
}

TEST(ClosedForms, ZeroBubbleH1) {
  for (const int p : kStages) {
    for (const int m : {p, p + 1, 2 * p, 3 * p, 5 * p + 1}) {
      for (const auto& cost : kUnequal) {
        const Schedule schedule = shape_of("zb-h1", p, m).make();
        const Simulation result = simulate(schedule, even_costs(schedule, cost));
        const double bubble = (p - 1) * (cost.forward + cost.input - std::min({cost.forward, cost.input, cost.weight}));
        EXPECT_NEAR(result.barrier_bubble, bubble, kTolerance * result.makespan) << "p=" << p << " m=" << m;
        if (cost.weight <= std::min(cost.forward, cost.input))
          expect_form(shape_of("zb-h1", p, m), cost, {bubble, bubble});
      }
    }
  }
}

TEST(ClosedForms, ZeroBubbleH2) {
  for (const int p : kStages) {
    for (const int m : {2 * p - 1, 2 * p, 3 * p, 5 * p + 1}) {
      for (const auto& cost : {StepCost{1, 1, 1}, StepCost{1, 1.2, 0.8}, StepCost{2, 3, 2}}) {
        const double window = (p - 1) * std::max(0.0, cost.forward + cost.input - 2 * cost.weight);
        expect_form(shape_of("zb-h2", p, m), cost, {(p - 1) * cost.forward, window});
      }
    }
  }
}

double window_of_h2(int p, int m, const StepCost& cost) {
  const Schedule schedule = shape_of("zb-h2", p, m).make();
  return simulate(schedule, even_costs(schedule, cost)).window_bubble;
}

TEST(ClosedForms, TheWindowOfZeroBubbleH2WhereIOrWIsNotLongerThanF) {
  test::Draw draw_of(37);
  int checked = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const int p = draw_of.between(1, 8);
    const int m = 2 * p - 1 + draw_of.between(0, 20);
    const StepCost cost = draw_of.cost();
    if (std::min(cost.input, cost.weight) > cost.forward) continue;
    const double form = (p - 1) * std::max(0.0, cost.forward + cost.input - 2 * cost.weight);
    EXPECT_NEAR(window_of_h2(p, m, cost), form, kTolerance * m * 15) << "p=" << p << " m=" << m;
    ++checked;
  }
  EXPECT_GT(checked, 1000);
  EXPECT_GT(window_of_h2(4, 8, {0.5, 2, 2}), 0.1);  // I and W longer than F: not 0
}

TEST(ClosedForms, TheVsWithEqualCosts) {
  for (const int p : kStages) {
    for (const int m : {2 * p, 2 * p + 1, 3 * p, 5 * p}) {
      for (const auto& cost : kEqual) {
        expect_form(shape_of("zb-v", p, m), cost, {(p - 1) * cost.forward / 2, 0});
        const double chunk = cost.forward / 2;
        const double pair = 3 * chunk;  // without overlap
        const double bubble = (p - 1) * (pair + 2 * chunk - 3 * chunk);
        expect_form(shape_of("dualpipe-v", p, m), cost, {bubble, bubble});
      }
    }
  }
}

// (d-1)(x + (i+w) - 3w) where a pair takes x. A pair takes that on every device, so the work shrinks with it.
TEST(ClosedForms, DualPipeVWithOverlap) {
  for (const int p : {2, 4, 8}) {
    for (const double overlap : {0.5, 1.0}) {
      const Schedule schedule = make_dualpipe_v({.stages = p, .micro_batches = 4 * p});
      Costs costs = even_costs(schedule, {2, 2, 2});
      costs.overlap = overlap;
      const Simulation result = simulate(schedule, costs);
      const double pair = 3 - overlap;  // f = i = w = 1
      const auto& last = result.devices.back();
      EXPECT_NEAR(last.idle, (p - 1) * (pair + 2 - 3), kTolerance * result.makespan) << p << " " << overlap;
    }
  }
}

struct Worked {
  int p;
  int m;
  std::string name;
  int v;
  double makespan;
  double percent;
  double peak;
};

TEST(ClosedForms, WorkedNumbers) {
  const std::vector<Worked> table{
      {2, 4, "1f1b", 1, 15, 20.00, 2},
      {2, 4, "interleaved", 2, 13.5, 11.11, 2.5},
      {2, 4, "zb-h1", 1, 13, 7.69, 2},
      {2, 4, "zb-v", 2, 12.5, 4.00, 2},
      {2, 4, "dualpipe-v", 2, 13, 7.69, 2.5},
      {4, 4, "1f1b", 1, 21, 42.86, 4},
      {4, 4, "interleaved", 2, 16.5, 27.27, 4},
      {4, 4, "zb-h1", 1, 15, 20.00, 4},
      {4, 8, "1f1b", 1, 33, 27.27, 4},
      {4, 8, "gpipe", 1, 33, 27.27, 8},
      {4, 8, "interleaved", 2, 28.5, 15.79, 5.5},
      {4, 8, "interleaved", 4, 26.25, 8.57, 4.75},
      {4, 8, "zb-h1", 1, 27, 11.11, 4},
      {4, 8, "zb-v", 2, 25.5, 5.88, 4},
      {4, 8, "dualpipe-v", 2, 27, 11.11, 4.5},
      {4, 16, "1f1b", 1, 57, 15.79, 4},
      {4, 16, "interleaved", 2, 52.5, 8.57, 5.5},
      {4, 16, "zb-h1", 1, 51, 5.88, 4},
      {4, 16, "zb-v", 2, 49.5, 3.03, 4},
      {4, 16, "dualpipe-v", 2, 51, 5.88, 4.5},
      {8, 32, "1f1b", 1, 117, 17.95, 8},
      {8, 32, "interleaved", 2, 106.5, 9.86, 11.5},
      {8, 32, "zb-h1", 1, 103, 6.80, 8},
      {8, 32, "zb-v", 2, 99.5, 3.52, 8},
      {8, 32, "dualpipe-v", 2, 103, 6.80, 8.5},
  };
  for (const auto& row : table) {
    SCOPED_TRACE(shape_of(row.name, row.p, row.m, row.v).text());
    const Schedule schedule = shape_of(row.name, row.p, row.m, row.v).make();
    const Simulation result = simulate(schedule, even_costs(schedule, {1, 1, 1}));
    EXPECT_NEAR(result.makespan, row.makespan, kTolerance);
    EXPECT_NEAR(100 * result.bubble_fraction, row.percent, 0.005);
    EXPECT_EQ(std::ranges::max(peak_in_flight(schedule)), row.peak * row.v);
  }
}

TEST(ClosedForms, WorkedNumbersOfUnequalCosts) {
  struct Row {
    StepCost cost;
    std::map<std::string, std::pair<double, double>> values;  // makespan, window bubble; -1: not given
  };
  const std::vector<Row> table{
      {{1, 1.2, 0.8},
       {{"1f1b", {33, -1}},
        {"interleaved", {28.5, -1}},
        {"zb-h1", {28.2, -1}},
        {"zb-h2", {27.0, 1.8}},
        {"zb-v", {25.8, 1.2}},
        {"dualpipe-v", {27.6, -1}}}},
      {{2, 3, 2},
       {{"1f1b", {77, -1}},
        {"interleaved", {66.5, -1}},
        {"zb-h1", {65, -1}},
        {"zb-h2", {62, 3}},
        {"zb-v", {60.5, 3}},
        {"dualpipe-v", {64, -1}}}},
  };
  for (const auto& row : table) {
    for (const auto& [name, values] : row.values) {
      const Schedule schedule = make_schedule(name, {.stages = 4, .micro_batches = 8});
      const Simulation result = simulate(schedule, even_costs(schedule, row.cost));
      EXPECT_NEAR(result.makespan, values.first, kTolerance) << name;
      if (values.second >= 0) {
        EXPECT_NEAR(result.window_bubble, values.second, kTolerance) << name;
      }
    }
  }
}

TEST(ClosedForms, WhereTheDevicesEnd) {
  for (const auto& cost : kUnequal) {
    for (const auto& [name, v] :
         std::vector<std::pair<std::string, int>>{{"1f1b", 1}, {"gpipe", 1}, {"interleaved", 2}, {"interleaved", 3}}) {
      const Schedule schedule = shape_of(name, 4, 8, v).make();
      const Simulation result = simulate(schedule, even_costs(schedule, cost));
      for (int r = 0; r < 4; ++r) {
        EXPECT_NEAR(result.devices[static_cast<std::size_t>(r)].end,
                    result.makespan - r * (cost.input + cost.weight) / v, kTolerance * result.makespan);
      }
    }
  }
  for (const std::string name : {"zb-h1", "dualpipe-v"}) {
    const Schedule schedule = shape_of(name, 4, 8).make();
    const Simulation result = simulate(schedule, even_costs(schedule, {1, 1, 1}));
    for (const auto& device : result.devices) EXPECT_NEAR(device.end, result.makespan, 1e-9) << name;
  }
}

// Most (stage, micro-batch) pairs that device r has in flight; nothing if there is no formula.
std::optional<int> pairs_in_flight(const NamedShape& shape, int r) {
  const int p = shape.shape.stages;
  const int m = shape.shape.micro_batches;
  const int v = shape.virtual_stages();
  std::map<std::string, int> most{
      {"gpipe", m * v},
      {"looped-bfs", m * v},
      {"1f1b", std::min(m, p - r)},
      {"zb-h1", std::min(m, p)},
      {"zb-h2", std::min(m, 2 * p - 1)},
      {"eager-1f1b", std::min(m, 2 * (p - r) - 1)},
      {"dualpipe-v", 2 * p + 1},
  };
  if (m % p == 0) most["interleaved"] = std::min(2 * (p - 1 - r) + (v - 1) * p + 1, m * v);
  if (m >= 2 * p) most["zb-v"] = 2 * p;
  const auto found = most.find(shape.name);
  return found == most.end() ? std::nullopt : std::optional(found->second);
}

int expect_in_flight(const NamedShape& shape) {
  const auto peaks = peak_in_flight(shape.make());
  int checked = 0;
  for (int r = 0; r < shape.shape.stages; ++r) {
    const auto expected = pairs_in_flight(shape, r);
    if (!expected) continue;
    EXPECT_EQ(peaks[static_cast<std::size_t>(r)], *expected) << shape.text() << " r=" << r;
    ++checked;
  }
  return checked;
}

TEST(ClosedForms, MicroBatchesInFlight) {
  int checked = 0;
  test::for_each_shape(6, 26, 4, [&](const NamedShape& shape) { checked += expect_in_flight(shape); });
  EXPECT_GT(checked, 5000);
}

// The largest shape that is promised: as exact as the small ones.
TEST(ClosedForms, SixtyFourDevicesAndFiveHundredTwelveMicroBatches) {
  constexpr int kDevices = 64;
  constexpr int kChunks = 512;
  const auto expect = [&](const NamedShape& shape, const std::vector<StepCost>& costs, auto form) {
    for (const auto& cost : costs) expect_form(shape, cost, form(cost));
    EXPECT_EQ(expect_in_flight(shape), kDevices) << shape.text();
  };
  const std::vector<StepCost> any{{1, 1, 1}, {1, 0.3, 2.5}};
  for (const std::string name : {"gpipe", "1f1b", "eager-1f1b", "interleaved", "looped-bfs"}) {
    for (const int v : test::is_looped(name) ? std::vector<int>{2, 8} : std::vector<int>{1}) {
      expect(shape_of(name, kDevices, kChunks, v), any, [&](const StepCost& cost) {
        const double bubble = 63 * (cost.forward + cost.input + cost.weight) / v;
        return Form{bubble, bubble};
      });
    }
  }
  expect(shape_of("zb-h1", kDevices, kChunks), {{1, 1, 1}, {3, 1, 0.5}}, [](const StepCost& cost) {
    const double bubble = 63 * (cost.forward + cost.input - cost.weight);
    return Form{bubble, bubble};
  });
  expect(shape_of("zb-h2", kDevices, kChunks), {{1, 1, 1}, {2, 3, 2}}, [](const StepCost& cost) {
    return Form{63 * cost.forward, 63 * (cost.forward + cost.input - 2 * cost.weight)};
  });
  expect(shape_of("zb-v", kDevices, kChunks), kEqual, [](const StepCost& cost) {
    return Form{63 * cost.forward / 2, 0};
  });
  expect(shape_of("dualpipe-v", kDevices, kChunks), kEqual, [](const StepCost& cost) {
    return Form{63 * cost.forward, 63 * cost.forward};
  });
}

}  // namespace
}  // namespace sluice::pipeline
