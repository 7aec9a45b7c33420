// predicted_server: a parameter server's part in a predicted step (tune/server_step.h). Pure. Errors: ConfigError.
#pragma once

#include <optional>
#include <string>

#include "config/config.h"
#include "profiler/layer_profile.h"
#include "tune/server_step.h"

namespace sluice::train {

// True if server and workers run on one machine: without ps.keys the server does not listen on other interfaces.
[[nodiscard]] bool is_on_one_machine(const config::Config& config);

// nullopt: no parameter server, or server_left_out() has the reason.
[[nodiscard]] std::optional<tune::ServerUse> server_use(const config::Config& config,
                                                        const profiler::LayerProfile& profile);

[[nodiscard]] double transferred_bytes(const config::Config& config, double bytes);

// What a prediction omits, as a sentence; may be empty.
[[nodiscard]] std::string server_left_out(const config::Config& config, const profiler::LayerProfile& profile);
[[nodiscard]] std::string server_left_out_of_cluster(const config::Config& config);

}  // namespace sluice::train
