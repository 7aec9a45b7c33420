#include <memory>
#include <string>

#include "app/commands.h"
#include "app/commands/simulate_workers.h"
#include "app/options.h"
#include "core/error.h"

namespace sluice::app {
namespace {

struct SimulateArguments {
  std::string config;
  SimulateWorkersArguments workers;
  OutputArguments output;
};

void run_simulate(const SimulateArguments& arguments) {
  if (!arguments.workers.are_given())
    throw ConfigError(
        "sluice simulate knows uneven workers of a parameter server so far; give --sync with one of its policies");
  if (!arguments.config.empty()) throw ConfigError("--sync simulates workers from its options alone; leave CONFIG out");
  arguments.workers.run(arguments.output);
}

}  // namespace

void add_simulate(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("simulate", "Predict in virtual time how fast uneven workers get on under a policy");
  const auto arguments = std::make_shared<SimulateArguments>();
  command->add_option("CONFIG", arguments->config, "Not with --sync");
  arguments->workers.add_to(*command);
  arguments->output.add_to(*command);
  command->callback([arguments] { run_simulate(*arguments); });
}

}  // namespace sluice::app
