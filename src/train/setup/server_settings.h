// server_settings: a parameter server's options from the configuration. Threads: any. Errors: ConfigError.
#pragma once

#include <functional>
#include <string>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "data/ledger.h"
#include "ps/compression.h"
#include "ps/policy/stragglers.h"
#include "ps/server.h"
#include "storage/record_log.h"
#include "train/setup/setup.h"

namespace sluice::train {

void check_policy(const Setup& setup);

[[nodiscard]] ps::SyncPolicy policy_of_server(const config::PsConfig& config);
[[nodiscard]] ps::ServerOptions server_options(const Setup& setup);
[[nodiscard]] optim::OptimizerOptions server_optimizer(const config::Config& config);
[[nodiscard]] std::function<double(const ps::ServerProgress&)> rate_of_server(const Setup& setup);
// True if workers make local steps with the configured optimizer. The server then has another one, or none.
[[nodiscard]] bool workers_update(const config::Config& config);

[[nodiscard]] ps::StragglerOptions straggler_options(const config::Config& config);
[[nodiscard]] ps::LinkCompression compression_options(const config::PsConfig& config);
[[nodiscard]] storage::Outlives outlives_of(const config::PsConfig& config);

// Samples of a typical update: those of all workers, or of one worker if each push makes an update.
[[nodiscard]] std::int64_t samples_of_update(const Setup& setup);
[[nodiscard]] std::string describe_server(const Setup& setup);

[[nodiscard]] bool ends_epoch(const ps::ServerProgress& before, const ps::ServerProgress& after, std::int64_t samples);

[[nodiscard]] nlohmann::ordered_json fields_of(const config::PsConfig& config, const ps::SyncPolicy& policy);

[[nodiscard]] data::LedgerOptions ledger_options(const Setup& setup);

}  // namespace sluice::train
