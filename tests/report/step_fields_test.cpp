#include "report/step_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/worker_writer.h"

namespace sluice::report {
namespace {

// The loopback's counters have each byte as sent and as received.
TEST(StepFields, TheRatesOfInterfacesAddUpToThatOfTheNetwork) {
  const profiler::NetworkRates rates = profiler::network_rates(
      {{"eth0", {0, 0}}, {"lo", {0, 0}}}, {{"eth0", {300, 100}}, {"lo", {800, 800}}}, /*seconds=*/2);
  const nlohmann::ordered_json fields = step_fields({}, &rates, {});
  double sum = 0;
  for (const auto& interface : fields.at("net")) {
    for (const auto& rate : interface) sum += rate.get<double>();
  }
  EXPECT_DOUBLE_EQ(sum, 600);
  EXPECT_DOUBLE_EQ(fields.at("net_bytes_per_s").get<double>(), sum);
  EXPECT_DOUBLE_EQ(fields.at("net").at("lo").at("sent").get<double>(), 400);
}

TEST(StepFields, AWorkerWithStepsOfItsOwnSaysAtWhichRate) {
  WorkerPush push;
  EXPECT_FALSE(worker_step_fields(push, 1, {}).contains("lr")) << "the server's rate is in the server's records";
  push.lr = 0.25;
  EXPECT_EQ(worker_step_fields(push, 1, {}).at("lr"), 0.25);
}

}  // namespace
}  // namespace sluice::report
