// simulate_cluster: `sluice simulate CONFIG --profile FILE --nodes N ...`: a cluster that nobody here has, from one
// device's profile. Not here: one machine (simulate_plan.h).
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "app/options.h"
#include "core/link_cost.h"
#include "profiler/layer_profile.h"

namespace sluice::app {

struct SimulateClusterArguments {
  int nodes = 0;     // 0: none are simulated
  int devices = 1;   // of a node
  LinkCost between;  // nodes
  LinkCost inside;   // a node, between its devices
  double noise = 0;
  std::string scaling = "weak";

  void add_to(CLI::App& command);
  [[nodiscard]] bool are_given() const { return nodes > 0; }
  void run(const config::Config& config, const profiler::LayerProfile& profile, const OutputArguments& output) const;
};

}  // namespace sluice::app
