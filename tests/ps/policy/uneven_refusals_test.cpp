#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "uneven_requests.h"

namespace sluice::ps {
namespace {

void expect_refused(const UnevenRequest& request, const std::string& part) {
  try {
    (void)simulate_uneven_workers(request);
    ADD_FAILURE() << "it was taken: " << part;
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(UnevenWorkers, RefuseWhatCannotBe) {
  const UnevenRequest good = request_of("fmb", 4, 64, 0.01);
  const auto refuse = [&](const auto& change, const std::string& part) {
    UnevenRequest request = good;
    change(request);
    expect_refused(request, part);
  };
  refuse([](auto& r) { r.sync = "fbm"; },
         "--sync fbm is unknown; give one of fmb, amb, bsp, ssp, asp, quorum; did you mean 'fmb'?");
  refuse([](auto& r) { r.sync = "diloco"; }, "give one of fmb, amb");
  refuse([](auto& r) { r.workers = 0; }, "--workers is 0");
  refuse([](auto& r) { r.workers = 5000; }, "give 1 to 4096");
  refuse([](auto& r) { r.base_batch = 0; }, "--base-batch is 0");
  refuse([](auto& r) { r.seconds_per_example.clear(); }, "--seconds-per-example is missing");
  refuse([](auto& r) { r.seconds_per_example = {1, 2, 3}; }, "has 3 values for 4 workers");
  for (const double s : {0.0, -1.0, double(NAN), double(INFINITY)})
    refuse([&](auto& r) { r.seconds_per_example = {s}; }, "finite numbers above 0");
  refuse([](auto& r) { r.seconds_per_example = {1e-12}; }, "less than a nanosecond");
  refuse([](auto& r) { r.seconds_per_example = {1e6}; }, "longer than 285 years");
  refuse([](auto& r) { r.steps = 0; }, "--steps is 0");
  refuse(
      [](auto& r) {
        r.steps = 400'000'000;
        r.seconds_per_example = {1e-4};
      },
      "lower --steps");
}

// 10^9 pushes at most, and what an update takes of them is the policy's.
TEST(UnevenWorkers, CountThePushesOfAnUpdate) {
  const auto refuse = [](UnevenRequest request, std::int64_t steps, const std::string& part) {
    request.steps = steps;
    expect_refused(request, part);
  };
  refuse(request_of("fmb", 4096, 1, 1e-4), 244'141, "244141 updates of 4096 pushes are more than 1000000000 pushes");
  refuse(request_of("quorum", 4096, 1, 1e-4), 488'044, "488044 updates of 2049 pushes are more");
  UnevenRequest ten = request_of("quorum", 4096, 1, 1e-4);
  ten.quorum = 10;
  refuse(ten, 100'000'001, "100000001 updates of 10 pushes are more");
  for (const std::string sync : {"ssp", "asp"})
    EXPECT_EQ(simulate_uneven_workers(request_of(sync, 4096, 1, 1e-4, 244'141)).pushes, 244'141) << sync;
}

TEST(UnevenWorkers, RefuseOptionsThatDoNotGoTogether) {
  const auto refuse = [&](const std::string& sync, const auto& change, const std::string& part) {
    UnevenRequest request =
        sync == "amb" ? anytime(request_of("amb", 4, 64, 0.01), 1, 4) : request_of(sync, 4, 64, 0.01);
    change(request);
    expect_refused(request, part);
  };
  refuse(
      "amb", [](auto& r) { r.time_limit_s.reset(); }, "give --amb-time-limit");
  refuse(
      "amb", [](auto& r) { r.partitions.reset(); }, "--partitions");
  for (const double limit : {0.0, -1.0, 1e-12, double(NAN), double(INFINITY)})
    refuse(
        "amb", [&](auto& r) { r.time_limit_s = limit; }, "give seconds above 0");
  refuse(
      "amb", [](auto& r) { r.partitions = 0; }, "--partitions is 0");
  refuse(
      "amb", [](auto& r) { r.partitions = 65; }, "slices without an example; give at most 64");
  refuse(
      "fmb", [](auto& r) { r.time_limit_s = 1; }, "--amb-time-limit is valid only with --sync amb");
  refuse(
      "asp", [](auto& r) { r.partitions = 4; }, "--partitions is valid only with --sync amb");
  refuse(
      "asp", [](auto& r) { r.staleness = 4; }, "--staleness is valid only with --sync ssp");
  refuse(
      "ssp", [](auto& r) { r.staleness = -1; }, "--sync asp for no bound");
  refuse(
      "ssp", [](auto& r) { r.quorum = 2; }, "--quorum is valid only with --sync quorum");
  refuse(
      "quorum", [](auto& r) { r.quorum = 5; }, "--quorum 5 of --workers 4");
  refuse(
      "quorum", [](auto& r) { r.quorum = 0; }, "give 1 to 4");
  refuse(
      "fmb", [](auto& r) { r.induce = "exponential"; }, "give one of none, ec2, cedar, shifted-exponential");
  refuse(
      "fmb",
      [](auto& r) {
        r.induce = "ec2";
        r.mean_s = 1;
      },
      "--mean is valid only with --induce shifted-exponential");
  refuse(
      "fmb", [](auto& r) { r.shift_s = 1; }, "--shift is valid only with --induce shifted-exponential");
  for (const double s : {-1.0, double(NAN), double(INFINITY)})
    refuse(
        "fmb",
        [&](auto& r) {
          r.induce = "shifted-exponential";
          r.shift_s = s;
        },
        "--shift is");
}

}  // namespace
}  // namespace sluice::ps
