// simulate_cluster: `sluice simulate ... --nodes N`: predicts a cluster from the profile of one device.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "app/options.h"
#include "core/link_cost.h"
#include "profiler/layer_profile.h"

namespace sluice::app {

struct SimulateClusterArguments {
  int nodes = 0;  // 0: do not simulate a cluster
  int devices = 1;
  LinkCost between;
  LinkCost inside;
  double noise = 0;
  std::string scaling = "weak";

  void add_to(CLI::App& command);
  [[nodiscard]] bool are_given() const { return nodes > 0; }
  void run(const config::Config& config, const profiler::LayerProfile& profile, const OutputArguments& output) const;
};

}  // namespace sluice::app
