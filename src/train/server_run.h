// server_run: what a run on a parameter server is made of, in virtual time or not: its policy and rule from the
// configuration, its updates as steps, and the server's state as the engine's. Pure but for the log. Threads: any.
// Errors: ConfigError.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "data/ledger.h"
#include "data/sample_reader.h"
#include "engine/engine.h"
#include "ps/compression.h"
#include "ps/policy/stragglers.h"
#include "ps/push.h"
#include "ps/server.h"
#include "storage/record_log.h"
#include "train/recorded_step.h"
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

// An epoch is as many samples as the data set has, whichever they are.
[[nodiscard]] bool ends_epoch(const ps::ServerProgress& before, const ps::ServerProgress& after, std::int64_t samples);

// Of the `ps` event.
[[nodiscard]] nlohmann::ordered_json fields_of(const config::PsConfig& config, const ps::SyncPolicy& policy);

// What workers are given samples from.
[[nodiscard]] data::LedgerOptions ledger_options(const Setup& setup);

// What a worker was given, as one batch.
[[nodiscard]] pipeline::MicroBatch read_lease(data::SampleReader& reader, const data::Lease& lease);

// The engine's optimizer as a server's, by shards.
[[nodiscard]] std::vector<std::pair<std::string, std::vector<at::Tensor>>> optimizer_in(const engine::Engine& engine,
                                                                                        const ps::Layout& layout);

// An update as the step of a run: all but its spans. Its events are a `push` for each push, in their order. What the
// experiments that it comes from print of it is in the log.
struct UpdateMade {
  const ps::UpdateRecord& done;
  const std::vector<ps::PushDone>& pushes;
  ps::ServerProgress before;
  ps::ServerProgress after;
  double seconds = 0;  // since the one before
  bool counts_correct = true;
};
[[nodiscard]] RecordedStep step_of(const Setup& setup, const UpdateMade& update);

// Into the engine: weights, running statistics and, where the server has any, optimizer state.
void load_from_server(engine::Engine& engine, const ps::Layout& layout, const ps::ServerState& state);

}  // namespace sluice::train
