// simulate_plan: `sluice simulate CONFIG --profile FILE`: time and memory of a step on the profiled machine.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "app/commands/simulate_cluster.h"
#include "app/options.h"

namespace sluice::app {

struct SimulatePlanArguments {
  ConfigArguments config;
  std::string profile;
  SimulateClusterArguments cluster;

  void add_to(CLI::App& command);
  [[nodiscard]] bool are_given() const { return !config.file.empty(); }
  void run(const OutputArguments& output) const;
};

}  // namespace sluice::app
