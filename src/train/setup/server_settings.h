// server_settings: what a configuration says of its parameter server: policy, rule of updates, rates, compression.
// Not here: its updates as the steps of a run (server_run.h). Pure. Threads: any. Errors: ConfigError.
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

// ConfigError where [ps] cannot be; nothing where there is no parameter server.
void check_policy(const Setup& setup);

[[nodiscard]] ps::SyncPolicy policy_of_server(const config::PsConfig& config);
[[nodiscard]] ps::ServerOptions server_options(const Setup& setup);
// Of the servers: of gradients the configuration's, of deltas the outer one.
[[nodiscard]] optim::OptimizerOptions server_optimizer(const config::Config& config);
// By ps.lr_by: of the server, or of its workers where they make steps of their own.
[[nodiscard]] std::function<double(const ps::ServerProgress&)> rate_of_server(const Setup& setup);
// Whether its workers make steps of their own between pushes, with the configuration's optimizer. Then the server has
// another one, or none.
[[nodiscard]] bool workers_update(const config::Config& config);

[[nodiscard]] ps::StragglerOptions straggler_options(const config::Config& config);
[[nodiscard]] ps::LinkCompression compression_options(const config::PsConfig& config);
// What pushes that are logged outlive. Requires: they are (ps.log).
[[nodiscard]] storage::Outlives outlives_of(const config::PsConfig& config);

// Of a usual update: every worker's, or one's where each push makes one.
[[nodiscard]] std::int64_t samples_of_update(const Setup& setup);
// The server, its workers and its policy, in one line; empty: there is none.
[[nodiscard]] std::string describe_server(const Setup& setup);

// An epoch is as many samples as the data set has, whichever they are.
[[nodiscard]] bool ends_epoch(const ps::ServerProgress& before, const ps::ServerProgress& after, std::int64_t samples);

// Of the `ps` event.
[[nodiscard]] nlohmann::ordered_json fields_of(const config::PsConfig& config, const ps::SyncPolicy& policy);

// What workers are given samples from.
[[nodiscard]] data::LedgerOptions ledger_options(const Setup& setup);

}  // namespace sluice::train
