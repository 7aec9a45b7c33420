// predicted_server: what a configuration and a profile say of a run on a parameter server: what a prediction of its
// steps has of it, and what it leaves out. Not here: the formulas (tune/server_step.h), measuring
// (measure/measure_server.h). Pure. Errors: ConfigError where [ps] cannot be.
#pragma once

#include <optional>
#include <string>

#include "config/config.h"
#include "profiler/layer_profile.h"
#include "tune/server_step.h"

namespace sluice::train {

// Whether the server and its workers run on one machine: without ps.keys they must, as nothing listens beyond it.
[[nodiscard]] bool is_on_one_machine(const config::Config& config);

// nullopt: no parameter server, or its part of a step is not predicted (server_left_out() says why).
[[nodiscard]] std::optional<tune::ServerUse> server_use(const config::Config& config,
                                                        const profiler::LayerProfile& profile);

// How many bytes a worker pushes and pulls in a step, for so many bytes of weights.
[[nodiscard]] double transferred_bytes(const config::Config& config, double bytes);

// What a prediction leaves out of the parameter server's part, as a sentence; empty: nothing.
[[nodiscard]] std::string server_left_out(const config::Config& config, const profiler::LayerProfile& profile);
// The same of a cluster (simulated_cluster.h).
[[nodiscard]] std::string server_left_out_of_cluster(const config::Config& config);

}  // namespace sluice::train
