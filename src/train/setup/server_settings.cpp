#include "train/setup/server_settings.h"

#include <algorithm>

#include "core/concat.h"
#include "core/text.h"
#include "train/setup/model_options.h"
#include "train/setup/worker_share.h"

namespace sluice::train {

void check_policy(const Setup& setup) {
  if (setup.config.replicas.has_server()) static_cast<void>(share_of(setup, 0));
}

ps::SyncPolicy policy_of_server(const config::PsConfig& config) {
  ps::SyncPolicy policy = ps::preset_policy(config.policy, config.workers);
  if (config.quorum) policy.quorum = *config.quorum;
  if (config.staleness) policy.staleness = *config.staleness;
  if (config.local_steps > 0) policy.local_steps = config.local_steps;
  if (policy.pushes_a_share) policy.merge = ps::merge_named(config.merge);
  if (policy.pushes_a_share && policy.merge == ps::Merge::kMean && !config.quorum) policy.quorum = 0;  // 0: all workers
  policy.grace = from_s(config.grace_s);
  policy.deadline = from_s(config.time_limit_s);
  ps::check_policy(policy, concat("ps.policy=\"", config.policy, "\""));
  return policy;
}

std::function<double(const ps::ServerProgress&)> rate_of_server(const Setup& setup) {
  const bool by_examples = setup.config.ps.lr_by == "examples";
  return [rates = lr_schedule(setup), by_examples, unit = samples_of_update(setup)](const ps::ServerProgress& at) {
    return rates.at(by_examples ? at.examples / unit : at.version);
  };
}

optim::OptimizerOptions server_optimizer(const config::Config& config) {
  switch (policy_of_server(config.ps).payload) {
    case ps::Payload::kGradients: return optimizer_options(config);
    case ps::Payload::kWeights: return {.kind = "sgd"};  // averages the weights without optimizer state
    case ps::Payload::kDelta: break;
  }
  if (config.ps.outer_momentum == 0) return {.kind = "sgd"};
  return {.kind = "momentum",
          .momentum = config.ps.outer_momentum,
          .nesterov = true,
          .nesterov_delay = config.ps.nesterov_delay};
}

ps::ServerOptions server_options(const Setup& setup) {
  ps::ServerOptions options{.policy = policy_of_server(setup.config.ps),
                            .optimizer = server_optimizer(setup.config),
                            .lr = rate_of_server(setup)};
  if (options.policy.payload == ps::Payload::kDelta)
    options.lr = [rate = setup.config.ps.outer_lr](const ps::ServerProgress&) { return rate; };
  if (!workers_update(setup.config)) options.clip_norm = setup.config.train.clip_norm;
  return options;
}

bool workers_update(const config::Config& config) {
  return policy_of_server(config.ps).payload != ps::Payload::kGradients;
}

ps::StragglerOptions straggler_options(const config::Config& config) {
  const config::PsConfig& ps = config.ps;
  return {.kind = ps.induce,
          .seed = config.train.seed,
          .scale = ps.induce_scale,
          .shift_s = ps.induce_shift_s,
          .mean_s = ps.induce_mean_s};
}

ps::LinkCompression compression_options(const config::PsConfig& config) {
  const auto of = [&](const std::string& name) {
    return ps::Compression{.kind = ps::compression_named(name), .ratio = config.topk_ratio};
  };
  return {.push = of(config.push_compression), .pull = of(config.pull_compression)};
}

storage::Outlives outlives_of(const config::PsConfig& config) {
  return config.log == "disk" ? storage::Outlives::kMachine : storage::Outlives::kProcess;
}

bool ends_epoch(const ps::ServerProgress& before, const ps::ServerProgress& after, std::int64_t samples) {
  return after.examples / samples > before.examples / samples;
}

std::int64_t samples_of_update(const Setup& setup) {
  const int workers = setup.config.ps.workers, quorum = policy_of_server(setup.config.ps).quorum;
  std::int64_t samples = 0;
  for (int worker = 0; worker < (quorum == 0 ? workers : std::min(quorum, workers)); ++worker)
    samples += share_of(setup, worker).samples;
  return samples;
}

namespace {

std::string describe_policy(const config::PsConfig& ps) {
  const ps::SyncPolicy policy = policy_of_server(ps);
  std::string text = "an update takes ";
  if (policy.quorum == 0)
    text += "one push of every worker";
  else
    text += policy.quorum == 1 ? "one push" : concat("the pushes of ", policy.quorum, " workers");
  if (policy.grace > 0) text += concat(" and those that follow within ", fixed(to_s(policy.grace), 3), " s");
  if (policy.staleness != ps::kUnbounded) text += concat("; no worker is more than ", policy.staleness, " ahead");
  if (policy.deadline > 0) text += concat("; workers stop after ", fixed(to_s(policy.deadline), 3), " s");
  if (policy.local_steps > 0) text += concat("; workers push after ", counted(policy.local_steps, "local step"));
  if (policy.pushes_a_share) {
    text += concat("; workers push after a share of an epoch, ", counted(ps.small_workers, "worker"),
                   " with a smaller batch");
  }
  return text;
}

}  // namespace

std::string describe_server(const Setup& setup) {
  if (!setup.config.replicas.has_server()) return {};
  const config::PsConfig& ps = setup.config.ps;
  std::string text =
      concat(ps.servers == 1 ? "parameter server: " : concat(ps.servers, " parameter servers: "), ps.policy, ", ",
             counted(ps.workers, "worker"), ps.clock == "virtual" ? " in virtual time" : "", ", ", ps.worker_batch,
             " samples each; ", describe_policy(ps));
  if (ps.push_compression != "none") text += concat("; push compression: ", ps.push_compression);
  if (ps.pull_compression != "none") text += concat("; pull compression: ", ps.pull_compression);
  if (ps.induce != "none") text += concat("; induced stalls: ", ps.induce);
  if (!setup.servers.empty()) text += concat("; at ", join(setup.servers, ", "));
  return text;
}

nlohmann::ordered_json fields_of(const config::PsConfig& config, const ps::SyncPolicy& policy) {
  return {{"policy", config.policy},
          {"clock", config.clock},
          {"servers", config.servers},
          {"workers", config.workers},
          {"worker_batch", config.worker_batch},
          {"quorum", policy.quorum},
          {"staleness", policy.staleness},
          {"grace_s", config.grace_s},
          {"time_limit_s", config.time_limit_s},
          {"induce", config.induce},
          {"push_compression", config.push_compression},
          {"pull_compression", config.pull_compression}};
}

data::LedgerOptions ledger_options(const Setup& setup) {
  const bool takes_shares = policy_of_server(setup.config.ps).pushes_a_share;
  return {.seed = setup.config.train.seed,
          .samples = setup.train_set->size(),
          .slack = takes_shares ? setup.config.ps.workers : 0};  // remainder of rounding the shares
}

}  // namespace sluice::train
