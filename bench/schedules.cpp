// schedules: the time to make, validate and simulate the largest supported schedules: 64 devices and 512 micro-batches,
// or the given numbers. Prints one JSON object: milliseconds by name, medians of the rounds.
//
//   build/release/bench/bench_schedules [DEVICES MICRO_BATCHES]
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/median.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/simulate.h"
#include "pipeline/schedule/validate.h"

namespace sluice::pipeline {
namespace {

constexpr int kRounds = 9;

class StopWatch {
 public:
  // Milliseconds since the last call.
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const double passed = std::chrono::duration<double, std::milli>(now - since_).count();
    since_ = now;
    return passed;
  }

 private:
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

struct Rounds {
  std::size_t actions = 0;
  double makespan = 0;
  std::vector<double> make, validate, simulate, all;
};

Rounds measure(const std::string& name, const PipelineShape& shape) {
  Rounds rounds;
  for (int round = 0; round < kRounds; ++round) {
    StopWatch watch;
    const Schedule schedule = make_schedule(name, shape);
    rounds.make.push_back(watch.lap());
    validate(schedule);
    rounds.validate.push_back(watch.lap());
    const std::vector<StepCost> devices(schedule.devices.size());
    rounds.makespan =
        simulate(schedule, {.stages = share_costs(schedule, devices), .sent_bytes = {}, .link = {.latency = 0.1}})
            .makespan;
    rounds.simulate.push_back(watch.lap());
    rounds.all.push_back(rounds.make.back() + rounds.validate.back() + rounds.simulate.back());
    rounds.actions = 0;
    for (const auto& actions : schedule.devices) rounds.actions += actions.size();
  }
  return rounds;
}

int run(const PipelineShape& shape) {
  std::printf("{\"devices\": %d, \"micro_batches\": %d, \"schedules\": {\n", shape.stages, shape.micro_batches);
  const auto names = schedule_names();
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Rounds rounds = measure(names[i], shape);
    std::printf(
        "  \"%s\": {\"actions\": %zu, \"make\": %.1f, \"validate\": %.1f, \"simulate\": %.1f, \"all\": %.1f, "
        "\"slowest\": %.1f, \"makespan\": %.10g}%s\n",
        names[i].c_str(), rounds.actions, median(rounds.make), median(rounds.validate), median(rounds.simulate),
        median(rounds.all), *std::ranges::max_element(rounds.all), rounds.makespan, i + 1 < names.size() ? "," : "");
  }
  std::printf("}}\n");
  return 0;
}

}  // namespace
}  // namespace sluice::pipeline

int main(int argc, char** argv) {
  sluice::pipeline::PipelineShape shape{.stages = 64, .micro_batches = 512, .virtual_stages = {}};
  if (argc == 3) {
    shape.stages = std::atoi(argv[1]);
    shape.micro_batches = std::atoi(argv[2]);
  }
  try {
    return sluice::pipeline::run(shape);
  } catch (const sluice::ConfigError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
