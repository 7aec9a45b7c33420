// Random times as a machine has them: noise, single slow steps, other programs' bursts.
#include "tune/slowness.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "core/concat.h"
#include "core/rng.h"

namespace sluice::tune {
namespace {

class Machine {
 public:
  explicit Machine(std::uint64_t seed) : rng_(seed) {}

  // The next step, `factor` times slower than usual.
  std::optional<Slowness::Change> step(double usual_s, double factor = 1) {
    const double noise = std::exp(0.1 * rng_.normal());
    const double spike = rng_.below(50) == 0 ? 1 + 4 * rng_.uniform() : 1;
    const double seconds = usual_s * factor * noise * spike;
    clock_s_ += seconds;
    return slowness_.add(++number_, seconds, seconds);
  }

  // For `seconds`; whether a change was noticed.
  bool run(double usual_s, double seconds, double factor = 1) {
    bool is_noticed = false;
    for (double end_s = clock_s_ + seconds; clock_s_ < end_s;) is_noticed |= step(usual_s, factor).has_value();
    return is_noticed;
  }

  std::int64_t number() const { return number_; }
  RngStream& rng() { return rng_; }

 private:
  RngStream rng_;
  Slowness slowness_;
  double clock_s_ = 0;
  std::int64_t number_ = 0;
};

TEST(Slowness, QuietStepsAreNoChange) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Machine machine(seed);
    for (int i = 0; i < 10'000; ++i)
      ASSERT_FALSE(machine.step(0.02 + 0.01 * static_cast<double>(seed))) << "step " << i << ", seed " << seed;
  }
}

TEST(Slowness, OtherProgramsBurstsAreNoChange) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Machine machine(seed);
    const double usual_s = 0.02 + 0.2 * machine.rng().uniform();
    for (int burst = 0; burst < 50; ++burst) {
      EXPECT_FALSE(machine.run(usual_s, 20 * machine.rng().uniform() + 5)) << "seed " << seed;
      // With the step in which it ends.
      EXPECT_FALSE(machine.run(usual_s, 1.5, 2 + 2 * machine.rng().uniform())) << "seed " << seed;
    }
  }
}

TEST(Slowness, AChangeThatLastsIsNamedOnceAndSoIsItsEnd) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(concat("seed ", seed));
    Machine machine(seed);
    const double usual_s = 0.6 + machine.rng().uniform(), factor = 1.6 + 3 * machine.rng().uniform();
    const auto quiet = 30 + machine.rng().below(200);
    for (std::uint64_t i = 0; i < quiet; ++i) ASSERT_FALSE(machine.step(usual_s));
    const std::int64_t since = machine.number() + 1;
    std::optional<Slowness::Change> change;
    while (!change && machine.number() < since + 20) change = machine.step(usual_s, factor);
    ASSERT_TRUE(change);
    EXPECT_LE(machine.number() - since, 6);
    EXPECT_NEAR(static_cast<double>(change->since_step), static_cast<double>(since), 1);
    EXPECT_NEAR(change->factor / factor, 1, 0.2);
    EXPECT_NEAR(change->before_s / usual_s, 1, 0.1);
    for (int i = 0; i < 50; ++i) ASSERT_FALSE(machine.step(usual_s, factor)) << "it is known";
    change.reset();
    const std::int64_t end = machine.number() + 1;
    while (!change && machine.number() < end + 20) change = machine.step(usual_s);
    ASSERT_TRUE(change);
    EXPECT_NEAR(static_cast<double>(change->since_step), static_cast<double>(end), 10)
        << "a single slow step may hide it";
    EXPECT_NEAR(change->factor, 1, 0.2);
    EXPECT_FALSE(machine.run(usual_s, 100));
  }
}

// 40 ms steps: five of them would be a burst of 0.2 s.
TEST(Slowness, ShortStepsAreWatchedForThreeSeconds) {
  Machine machine(1);
  machine.run(0.04, 10);
  const std::int64_t since = machine.number() + 1;
  EXPECT_FALSE(machine.run(0.04, 2.8, 2));
  EXPECT_TRUE(machine.run(0.04, 1, 2));
  EXPECT_GT(machine.number() - since, 30);
}

}  // namespace
}  // namespace sluice::tune
