#include <memory>
#include <string>

#include "app/commands.h"
#include "app/commands/simulate_plan.h"
#include "app/commands/simulate_workers.h"
#include "app/options.h"
#include "core/error.h"

namespace sluice::app {
namespace {

struct SimulateArguments {
  SimulatePlanArguments plan;
  SimulateWorkersArguments workers;
  OutputArguments output;
};

void run_simulate(const SimulateArguments& arguments) {
  if (!arguments.workers.are_given()) {
    if (!arguments.plan.are_given())
      throw ConfigError(
          "simulate needs CONFIG and --profile, for a plan, or --sync, for workers of a parameter server");
    return arguments.plan.run(arguments.output);
  }
  if (arguments.plan.are_given()) throw ConfigError("--sync simulates workers from options alone; remove CONFIG");
  arguments.workers.run(arguments.output);
}

}  // namespace

void add_simulate(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "simulate", "Predict a step of a plan from a profile, or the speed of uneven workers of a parameter server");
  const auto arguments = std::make_shared<SimulateArguments>();
  arguments->plan.add_to(*command);
  arguments->workers.add_to(*command);
  arguments->output.add_to(*command);
  command->callback([arguments] { run_simulate(*arguments); });
}

}  // namespace sluice::app
