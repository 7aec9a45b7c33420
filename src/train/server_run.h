// server_run: what a run on a parameter server is made of, in virtual time or not: its policy and rule from the
// configuration, its records, and the server's state as the engine's. Threads: any. Errors: ConfigError.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "data/ledger.h"
#include "data/loader.h"
#include "data/sample_reader.h"
#include "engine/engine.h"
#include "ps/compression.h"
#include "ps/policy/stragglers.h"
#include "ps/push.h"
#include "ps/server.h"
#include "storage/record_log.h"
#include "train/setup.h"

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

// Where a run stands in its data after an update: an epoch is as many samples as the data set has, whichever they are;
// an update that goes beyond one is its last batch.
[[nodiscard]] bool ends_epoch(const ps::ServerProgress& before, const ps::ServerProgress& after, std::int64_t samples);
[[nodiscard]] data::Batch place_of(const ps::ServerProgress& before, const ps::ServerProgress& after,
                                   const Setup& setup);

// What all pushes of an update have done, as one step.
[[nodiscard]] StepStats stats_of(const std::vector<ps::PushDone>& pushes, bool counts_correct);
[[nodiscard]] nlohmann::ordered_json fields_of(const ps::PushDone& push, std::int64_t version);
// Of the `ps` event.
[[nodiscard]] nlohmann::ordered_json fields_of(const config::PsConfig& config, const ps::SyncPolicy& policy);

// What workers are given samples from.
[[nodiscard]] data::LedgerOptions ledger_options(const Setup& setup);

// What a worker was given, as one batch.
[[nodiscard]] pipeline::MicroBatch read_lease(data::SampleReader& reader, const data::Lease& lease);

// The engine's optimizer as a server's, by shards.
[[nodiscard]] std::vector<std::pair<std::string, std::vector<at::Tensor>>> optimizer_in(const engine::Engine& engine,
                                                                                        const ps::Layout& layout);

// An update of whole or anytime batches, in the words of the anytime project's master; empty with other policies.
[[nodiscard]] std::string describe_update(const Setup& setup, const ps::UpdateRecord& done, const StepStats& stats,
                                          double seconds);
// A worker's round with steps of its own, in the words of the experiments with dual batch sizes.
[[nodiscard]] std::string describe_round(const Setup& setup, const ps::PushDone& push);

// Into the engine: weights, running statistics and, where the server has any, optimizer state.
void load_from_server(engine::Engine& engine, const ps::Layout& layout, const ps::ServerState& state);

}  // namespace sluice::train
