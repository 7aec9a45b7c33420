// What a hop's latency adds to the makespan, against the closed forms of docs/reference/schedules.md: for random costs,
// hops up to the limit of each form, and beyond it. p devices, m micro-batches, v stages a device; c the hop.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "pipeline/schedule/shapes.h"
#include "pipeline/schedule/simulate.h"

namespace sluice::pipeline {
namespace {

using test::NamedShape;
using test::shape_of;

double makespan(const Schedule& schedule, const StepCost& cost, double hop) {
  return simulate(schedule, test::even_costs(schedule, cost, hop)).makespan;
}

double extra(const NamedShape& shape, const StepCost& cost, double hop) {
  const Schedule schedule = shape.make();
  return makespan(schedule, cost, hop) - makespan(schedule, cost, 0);
}

double form(const NamedShape& shape, double hop) {
  const int p = shape.shape.stages;
  const int m = shape.shape.micro_batches;
  if (shape.name == "1f1b") return 2 * hop * ((p - 1.0) * m / p + p - 2);
  if (shape.name == "interleaved") return 2 * hop * (p * shape.virtual_stages() - 1);
  return (shape.name == "zb-h1" ? 4 : 2) * hop * (p - 1);
}

// The longest hop for which the form holds.
double limit(const NamedShape& shape, const StepCost& cost) {
  const double backward = cost.input + cost.weight;
  if (shape.name == "eager-1f1b") return (cost.forward + backward) / 2;
  if (shape.name == "interleaved") return std::min(cost.forward, backward) / shape.virtual_stages();
  if (shape.name == "zb-h1") return cost.weight <= std::min(cost.forward, cost.input) ? cost.weight / 2 : -1;
  return std::numeric_limits<double>::infinity();
}

void expect_form(const NamedShape& shape, const StepCost& cost) {
  const double longest = limit(shape, cost);
  if (longest < 0) return;
  const std::vector<double> hops =
      longest < 1e9 ? std::vector{0.01 * longest, 0.6 * longest, longest} : std::vector{0.1, 1.0, 30.0};
  const Schedule schedule = shape.make();
  const double without = makespan(schedule, cost, 0);
  for (const double hop : hops) {
    const double with = makespan(schedule, cost, hop);
    EXPECT_NEAR(with - without, form(shape, hop), 1e-9 * with)
        << shape.text() << " F=" << cost.forward << " I=" << cost.input << " W=" << cost.weight << " c=" << hop;
  }
}

std::vector<StepCost> some_costs(int random) {
  std::vector<StepCost> costs{{1, 1, 1}, {1, 1.2, 0.8}, {2, 3, 2}, {1, 0.3, 2.5}, {3, 1, 0.5}, {0.5, 2, 2}};
  test::Draw draw_of(41);
  for (int i = 0; i < random; ++i) costs.push_back(draw_of.cost());
  return costs;
}

TEST(HopForms, OfEveryCostAndHopWithinTheLimits) {
  for (const auto& cost : some_costs(30)) {
    for (const int p : {2, 3, 4, 8}) {
      for (const int m : {1, 3, p, 2 * p + 1, 16}) {
        expect_form(shape_of("gpipe", p, m), cost);
        expect_form(shape_of("eager-1f1b", p, m), cost);
      }
      for (const int rounds : {1, 2, 5}) expect_form(shape_of("1f1b", p, p * rounds), cost);
      for (const int rounds : {2, 5}) {
        for (const int v : {1, 2, 3, 4}) expect_form(shape_of("interleaved", p, p * rounds, v), cost);
      }
      for (const int m : {2 * p, 3 * p + 1, 20}) expect_form(shape_of("zb-h1", p, m), cost);
    }
  }
}

TEST(HopForms, OfTheLargestShape) {
  for (const auto& cost : {StepCost{1, 1.2, 0.8}, StepCost{3, 1, 0.5}}) {
    for (const std::string name : {"gpipe", "1f1b", "eager-1f1b", "zb-h1"}) expect_form(shape_of(name, 64, 512), cost);
    expect_form(shape_of("interleaved", 64, 512, 2), cost);
  }
}

TEST(HopForms, DoNotHoldBeyondTheirLimits) {
  for (const auto& cost : some_costs(0)) {
    for (const std::string name : {"eager-1f1b", "interleaved", "zb-h1"}) {
      const NamedShape shape = shape_of(name, 4, 16, 2);
      const double hop = 1.2 * limit(shape, cost);
      if (hop < 0) continue;
      EXPECT_GT(extra(shape, cost, hop), form(shape, hop) + 1e-3) << shape.text() << " F=" << cost.forward;
    }
  }
}

TEST(HopForms, OneForwardOneBackwardNeedsAMultipleOfTheDevices) {
  EXPECT_NEAR(extra(shape_of("1f1b", 4, 6), {1, 1, 1}, 0.1), 1.2, 1e-9);  // the form says 1.3
  EXPECT_NEAR(extra(shape_of("1f1b", 1, 8), {1, 1, 1}, 0.1), 0, 1e-9);    // and needs 2 devices: it says -0.2 here
}

}  // namespace
}  // namespace sluice::pipeline
