// served_step() beside a brute-force simulation, event by event: workers and the ends of the network that they share.
#include "tune/server_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "pipeline/schedule/generators.h"
#include "tune/predict.h"

namespace sluice::tune {
namespace {

constexpr double kRounding = 1e-9;
constexpr double kBytes = 1000;

// Serves one after the other, in the order in which they come.
class Queue {
 public:
  double serve(double come, double seconds) { return free_ = std::max(free_, come) + seconds; }

 private:
  double free_ = 0;
};

struct Case {
  double push_s = 0, update_s = 0, merge_s = 0, pull_s = 0;  // of kBytes
  double latency_s = 0;                                      // of a push; half of it of a pull
  double computing = 1;
};

ServerUse use_of(const Case& costs, int workers, bool waits_for_all) {
  return {.cost = {.push = {costs.latency_s, kBytes / costs.push_s, 0},
                   .pull = {costs.latency_s / 2, kBytes / costs.pull_s, 0},
                   .update = {0, costs.update_s / kBytes, 0},
                   .merge = {0, costs.merge_s / kBytes, 0}},
          .workers = workers,
          .waits_for_all = waits_for_all};
}

double predicted(const ServerUse& use, const Case& costs) {
  return costs.computing +
         served_step(use, {.computing = costs.computing, .pushing = use.push_link().transfer(kBytes), .bytes = kBytes})
             .seconds();
}

// Of the later ones of many cycles of each worker, in the mean. begin: [worker].
double settled(const std::vector<std::vector<double>>& begins) {
  const std::size_t half = begins.size() / 2, last = begins.size() - 1;
  double sum = 0;
  for (std::size_t w = 0; w < begins[0].size(); ++w) sum += begins[last][w] - begins[half][w];
  return sum / static_cast<double>(begins[0].size() * (last - half));
}

constexpr int kCycles = 400;

// The server does for one push all that it has to, before it looks at the next one.
double simulate_one_by_one(const Case& costs, int workers) {
  Queue server;
  std::vector<std::vector<double>> begins{std::vector<double>(static_cast<std::size_t>(workers), 0.0)};
  for (int cycle = 0; cycle < kCycles; ++cycle) {
    std::vector<double> next = begins.back();
    std::vector<std::size_t> order(next.size());
    for (std::size_t w = 0; w < order.size(); ++w) order[w] = w;
    std::ranges::stable_sort(order, {}, [&](std::size_t w) { return next[w]; });
    for (const std::size_t w : order) {
      const double come = next[w] + costs.computing + costs.latency_s;
      next[w] = server.serve(come, costs.push_s + costs.update_s + costs.pull_s) + costs.latency_s / 2;
    }
    begins.push_back(next);
  }
  return settled(begins);
}

// All pushes, then the update of all, then all weights; who has them begins.
double simulate_together(const Case& costs, int workers) {
  Queue network;
  std::vector<std::vector<double>> begins{std::vector<double>(static_cast<std::size_t>(workers), 0.0)};
  for (int cycle = 0; cycle < kCycles; ++cycle) {
    std::vector<double> next = begins.back();
    double all = 0;
    for (const double begin : next) all = network.serve(begin + costs.computing, costs.push_s);
    all += costs.latency_s + costs.update_s + (workers - 1) * costs.merge_s;
    for (double& begin : next) begin = network.serve(all, costs.pull_s) + costs.latency_s / 2;
    begins.push_back(next);
  }
  return settled(begins);
}

const std::vector<Case> kCases{{.push_s = 0.1, .update_s = 0.05, .merge_s = 0.02, .pull_s = 0.03},
                               {.push_s = 0.1, .update_s = 0.2, .merge_s = 0.1, .pull_s = 0.3, .latency_s = 0.04},
                               {.push_s = 0.01, .update_s = 0.5, .merge_s = 0.3, .pull_s = 0.02, .latency_s = 0.01},
                               {.push_s = 2, .update_s = 0.3, .merge_s = 0.1, .pull_s = 1, .computing = 0.5}};

TEST(ServedStep, OneByOneIsAQueue) {
  for (const Case& costs : kCases) {
    for (const int workers : {1, 2, 3, 5, 16})
      EXPECT_NEAR(predicted(use_of(costs, workers, false), costs), simulate_one_by_one(costs, workers), 1e-6)
          << workers << " workers, a push of " << costs.push_s << " s";
  }
}

TEST(ServedStep, TogetherTheLongerWayCountsForEachWorker) {
  for (const Case& costs : kCases) {
    for (const int workers : {1, 2, 3, 5, 16})
      EXPECT_NEAR(predicted(use_of(costs, workers, true), costs), simulate_together(costs, workers), 1e-6)
          << workers << " workers, a push of " << costs.push_s << " s";
  }
}

TEST(ServedStep, SeveralServersShareTheBytes) {
  const Case costs{.push_s = 0.4, .update_s = 0.2, .merge_s = 0.1, .pull_s = 0.3, .latency_s = 0.02, .computing = 5};
  const Case half{.push_s = 0.2, .update_s = 0.1, .merge_s = 0.05, .pull_s = 0.15, .latency_s = 0.02, .computing = 5};
  for (const bool waits_for_all : {false, true}) {
    ServerUse use = use_of(costs, 3, waits_for_all);
    use.servers = 2;
    EXPECT_NEAR(predicted(use, costs), predicted(use_of(half, 3, waits_for_all), half) + 6 * 0.02, kRounding)
        << "six messages between the servers";
  }
}

// Two workers that compute for a second on one core each: of four cores nobody waits, of one all is done one by one.
TEST(ServedStep, CoresThatAllShareDoTheWorkOfAll) {
  const Case costs{.push_s = 0.1, .update_s = 0.2, .pull_s = 0.1};
  ServerUse use = use_of(costs, 2, false);
  const double own = 1 + 0.1 + 0.2 + 0.1;
  for (const int cores : {0, 4, 2}) {
    use.cores = cores;
    EXPECT_NEAR(predicted(use, costs), own, kRounding) << cores << " cores";
  }
  use.cores = 1;
  Case stretched = costs;
  stretched.computing = 2;  // of 1, beside the other worker's
  EXPECT_NEAR(predicted(use, stretched), 2 * own, kRounding);
  use.servers = 2;  // each busy half as long, but their work is as much as before
  use.cores = 2;
  EXPECT_NEAR(predicted(use, costs), own, kRounding);
}

TEST(ServedStep, LoadingHidesBehindThePull) {
  const ServerUse use = use_of({.push_s = 0.1, .update_s = 0.2, .pull_s = 0.5}, 1, true);
  EXPECT_NEAR(served_step(use, {.computing = 1, .bytes = kBytes, .loading = 0.4}).load, 0, kRounding);
  EXPECT_NEAR(served_step(use, {.computing = 1, .bytes = kBytes, .loading = 0.7}).load, 0.2, kRounding);
}

TEST(ServedStep, AllWaitForTheSlowest) {
  const Case costs{.push_s = 0.1, .update_s = 0.2, .pull_s = 0.1};
  const WorkerStep worker{.computing = 1, .bytes = kBytes, .slowest = 0.3};
  EXPECT_NEAR(served_step(use_of(costs, 2, true), worker).wait, 0.3 + 0.1, kRounding) << "and for the other's bytes";
  EXPECT_NEAR(served_step(use_of(costs, 2, false), worker).wait, 0, kRounding);
}

// Of predict_step(): one stage of two layers of 500 bytes, a bucket each, whose backward takes 2 s and 3 s.
class PredictedWorker : public testing::Test {
 protected:
  PredictedWorker() {
    costs_.stages = {{.forward = 1, .input = 2, .weight = 3, .backward = 5.0}};
    costs_.gradients = {{{.bytes = 500, .backward = 2}, {.bytes = 500, .backward = 3}}};
    costs_.overheads.bucket_bytes = 500;
    costs_.overheads.update = AffineCost{.a_s = 100};
    costs_.overheads.server = use_of({.push_s = 2, .update_s = 0.5, .pull_s = 0.25}, 1, true);
  }
  [[nodiscard]] StepPrediction predict() const {
    return predict_step(pipeline::with_reductions(pipeline::make_schedule("1f1b", {.stages = 1, .micro_batches = 1})),
                        costs_);
  }

  StepCosts costs_;
};

TEST_F(PredictedWorker, PushesWhileBackwardRuns) {
  const StepPrediction step = predict();
  EXPECT_NEAR(step.served->push, 1, kRounding) << "the first layer's bucket alone is whole at the end";
  EXPECT_NEAR(step.seconds, 6 + 1 + 0.5 + 0.25, kRounding);
  EXPECT_NEAR(step.update, 0.5, kRounding) << "the server's, in the place of its own";
  costs_.overheads.server->goes_ahead = false;
  EXPECT_NEAR(predict().served->push, 2, kRounding);
}

TEST_F(PredictedWorker, ItsPartsAddUpToTheStep) {
  costs_.overheads.server->workers = 4;
  costs_.overheads.server->deviation = 0.1;
  costs_.overheads.other_s = 0.125;
  costs_.overheads.loading = Loading{.cost = {.sample_s = 0.25, .cpu_s = 0.25}, .samples = 8};
  for (const bool waits_for_all : {true, false}) {
    costs_.overheads.server->waits_for_all = waits_for_all;
    const StepPrediction step = predict();
    const DevicePrediction& device = step.devices.at(0);
    EXPECT_NEAR(device.compute + device.all_reduce + device.update + device.load + device.bubble + device.other,
                step.seconds, kRounding);
    EXPECT_NEAR(step.load, 8 * 0.25 - 0.25, kRounding);
  }
}

}  // namespace
}  // namespace sluice::tune
