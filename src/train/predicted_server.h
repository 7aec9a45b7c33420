// predicted_server: what a configuration and a profile say of a run on a parameter server: what a prediction of its
// steps has of it, and what it leaves out. Not here: the formulas (tune/server_step.h), measuring (profiler/measure/measure_server.h).
// Pure. Errors: ConfigError where [ps] cannot be.
#pragma once

#include <optional>
#include <string>

#include "config/config.h"
#include "profiler/layer_profile.h"
#include "tune/server_step.h"

namespace sluice::train {

// Server and workers, for without keys nothing listens beyond the machine.
[[nodiscard]] bool is_on_one_machine(const config::Config& config);

// Nothing: there is no parameter server, or left_out_of() says why its part of a step is not predicted.
[[nodiscard]] std::optional<tune::ServerUse> server_use(const config::Config& config,
                                                        const profiler::LayerProfile& profile);

// Of so many bytes of weights what a worker pushes and pulls a step, as ps.push_compression and the like have it.
[[nodiscard]] double bytes_that_travel(const config::Config& config, double bytes);

// What no prediction of this configuration by this profile has, as a sentence; empty: it has all of a step.
[[nodiscard]] std::string left_out_of(const config::Config& config, const profiler::LayerProfile& profile);
// The same of a cluster (simulated_cluster.h).
[[nodiscard]] std::string left_out_of_cluster(const config::Config& config);

}  // namespace sluice::train
