#include "train/server_run.h"

#include <algorithm>
#include <map>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/divided_up.h"
#include "core/log.h"
#include "core/text.h"
#include "engine/state.h"
#include "train/composition.h"
#include "train/worker_share.h"

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
  if (policy.pushes_a_share && policy.merge == ps::Merge::kMean && !config.quorum)
    policy.quorum = 0;  // of every worker
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
    case ps::Payload::kWeights: return {.kind = "sgd"};  // mixes them, without any state
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
  std::string text = "an update is made of ";
  text += policy.quorum == 0 ? "one push of every worker" : counted(policy.quorum, "push");
  if (policy.grace > 0) text += concat(" and those within ", fixed(to_s(policy.grace), 3), " s");
  if (policy.staleness != ps::kUnbounded) text += concat("; nobody is more than ", policy.staleness, " ahead");
  if (policy.deadline > 0) text += concat("; workers stop after ", fixed(to_s(policy.deadline), 3), " s");
  if (policy.local_steps > 0) text += concat("; after ", counted(policy.local_steps, "step"), " of their own");
  if (policy.pushes_a_share) {
    text += concat("; after a share of an epoch, ", counted(ps.small_workers, "worker"), " with a smaller batch");
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
  if (ps.push_compression != "none") text += concat("; pushes as ", ps.push_compression);
  if (ps.pull_compression != "none") text += concat("; pulls as ", ps.pull_compression);
  if (ps.induce != "none") text += concat("; stalls: ", ps.induce);
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
          .slack = takes_shares ? setup.config.ps.workers : 0};  // what rounding the shares has left
}

pipeline::MicroBatch read_lease(data::SampleReader& reader, const data::Lease& lease) {
  const int view = reader.view_in(lease.epoch);
  const data::Samples samples = reader.read(lease.samples, view);
  return {.inputs = samples.inputs,
          .targets = samples.targets,
          .sample_ids = at::tensor(lease.samples, at::kLong),
          .view = view,
          .pixel_scale = samples.pixel_scale};
}

namespace {

// An update that goes beyond an epoch is its last batch.
data::Batch batch_of_update(const ps::ServerProgress& before, const ps::ServerProgress& after, const Setup& setup) {
  const std::int64_t samples = setup.train_set->size(), unit = samples_of_update(setup);
  const std::int64_t batches = std::max<std::int64_t>(divided_up(samples, unit), 2);  // one that is not the last
  const std::int64_t begun = std::min(before.examples % samples / unit, batches - 2);
  return {.epoch = before.examples / samples,
          .batch = ends_epoch(before, after, samples) ? batches - 1 : begun,
          .batches = batches,
          .global_size = after.examples - before.examples};
}

// What all pushes of an update have done.
StepStats stats_of(const std::vector<ps::PushDone>& pushes, bool counts_correct) {
  StepStats stats;
  EvalCounts correct;
  double loss_sum = 0;
  for (const ps::PushDone& push : pushes) {
    stats.samples += push.record.examples;
    stats.targets += push.record.targets;
    loss_sum += push.scores.loss_sum;
    correct += {.loss_sum = push.scores.loss_sum,
                .top1 = push.scores.top1,
                .top5 = push.scores.top5,
                .targets = push.record.targets};
  }
  if (stats.targets > 0) stats.loss = loss_sum / static_cast<double>(stats.targets);
  if (counts_correct) stats.correct = correct;
  return stats;
}

// Learning rate of the steps that a worker has made by itself: the schedule at the weights that it began with.
double own_rate(const Setup& setup, const ps::PushDone& push) {
  return lr_schedule(setup).at(push.record.base_version);
}

// Mean over the targets of an update; exact if all its pushes have the same rate.
double mean_own_rate(const Setup& setup, const std::vector<ps::PushDone>& pushes) {
  if (pushes.empty()) return 0;
  const double first = own_rate(setup, pushes.front());
  double targets = 0, above_first = 0;
  for (const ps::PushDone& push : pushes) {
    const auto weight = static_cast<double>(std::max<std::int64_t>(push.record.targets, 1));
    targets += weight;
    above_first += weight * (own_rate(setup, push) - first);
  }
  return first + above_first / targets;
}

nlohmann::ordered_json fields_of(const ps::PushDone& push, std::int64_t version) {
  return {{"step", version},
          {"worker", static_cast<int>(push.record.worker)},
          {"life", push.record.life},
          {"sequence", push.record.sequence},
          {"version", push.record.base_version},
          {"staleness", push.staleness},
          {"examples", push.record.examples},
          {"compute_s", push.times.compute_s},
          {"idle_s", push.times.idle_s},
          {"send_s", push.times.send_s},
          {"sleep_s", push.times.stall_s}};
}

// Of whole or anytime batches, in the words of the anytime project's master; empty with other policies.
std::string describe_update(const Setup& setup, const ps::UpdateRecord& done, const StepStats& stats, double seconds) {
  const std::string& policy = setup.config.ps.policy;
  const std::int64_t every = setup.config.log.every;
  if ((policy != "amb" && policy != "fmb") || done.update.version % every != 0) return {};
  std::string line =
      concat("step = ", done.update.version, ", loss = ", fixed(stats.loss, 4), ", learning_rate = ", done.lr);
  if (stats.correct && stats.correct->targets > 0) {
    const auto right = static_cast<double>(stats.correct->top1) / static_cast<double>(stats.correct->targets);
    line += concat(", accuracy = ", fixed(right, 4));
  }
  return line + concat(" (", fixed(seconds, 3), " sec)");
}

// Describes the push of a worker with steps of its own, in the words of the experiments with dual batch sizes. As in
// all lines of the log, epochs count from 1; `epoch` is that of the records, from 0.
std::string describe_round(const Setup& setup, const ps::PushDone& push, std::int64_t epoch) {
  const int worker = static_cast<int>(push.record.worker);
  const auto targets = static_cast<double>(std::max<std::int64_t>(push.record.targets, 1));
  return concat("Epoch ", epoch + 1, " BS ", share_of(setup, worker).batch, " LR ", own_rate(setup, push), ": worker ",
                worker, ", push ", push.record.sequence, ", train loss ", fixed(push.scores.loss_sum / targets, 4),
                ", accuracy ", fixed(100 * static_cast<double>(push.scores.top1) / targets, 2), " %");
}

}  // namespace

RecordedStep step_of(const Setup& setup, const UpdateMade& update) {
  const ps::UpdateRecord& done = update.done;
  const bool is_local = workers_update(setup.config);
  RecordedStep step{.batch = batch_of_update(update.before, update.after, setup),
                    .stats = stats_of(update.pushes, update.counts_correct)};
  for (const ps::PushDone& push : update.pushes) {
    nlohmann::ordered_json& fields = step.events.emplace_back("push", fields_of(push, done.update.version)).second;
    if (!is_local) continue;
    fields["lr"] = own_rate(setup, push);
    log_info(describe_round(setup, push, step.batch.epoch));
  }
  step.lr = is_local ? mean_own_rate(setup, update.pushes) : done.lr;
  if (!is_local && setup.config.train.clip_norm > 0) step.stats.gradient_norm = done.gradient_norm;
  const std::string said = describe_update(setup, done, step.stats, update.seconds);
  if (!said.empty()) log_info(said);
  return step;
}

std::vector<std::pair<std::string, std::vector<at::Tensor>>> optimizer_in(const engine::Engine& engine,
                                                                          const ps::Layout& layout) {
  std::map<std::string, std::vector<at::Tensor>> by_name;  // of each state, [parameter], flat
  const storage::TensorMap tensors = engine::optimizer_tensors(engine.composition());
  for (const auto& [name, flat] : engine.composition().optimizers.front()->states()) {
    for (const ps::Parameter& parameter : layout.parameters) {
      const at::Tensor values = at::empty({parameter.elements()}, layout.dtype);
      ps::in_shape(parameter, values).copy_(tensors.at(concat(name, "/", parameter.name)));
      by_name[name].push_back(values);
    }
  }
  std::vector<std::pair<std::string, std::vector<at::Tensor>>> states;
  for (const auto& [name, values] : by_name) states.emplace_back(name, ps::to_shards(layout, values));
  return states;
}

void load_from_server(engine::Engine& engine, const ps::Layout& layout, const ps::ServerState& server) {
  engine::State state{.model = engine::model_tensors(engine.composition()),
                      .optimizer = engine::optimizer_tensors(engine.composition()),
                      .optimizer_steps = server.progress.version};
  const auto put = [&](storage::TensorMap& into, const std::string& prefix, const std::vector<at::Tensor>& shards) {
    const std::vector<at::Tensor> values = ps::from_shards(layout, shards);
    for (std::size_t p = 0; p < values.size(); ++p)
      into[concat(prefix, layout.parameters[p].name)] = ps::in_shape(layout.parameters[p], values[p]);
  };
  put(state.model, "", server.weights.shards);
  std::int64_t begin = 0;
  for (const auto& [name, elements] : layout.statistics) {
    state.model.at(name) = server.weights.statistics.narrow(0, begin, elements);
    begin += elements;
  }
  for (const auto& [name, shards] : server.optimizer) put(state.optimizer, concat(name, "/"), shards);
  engine.load(state, "the parameter server");
}

}  // namespace sluice::train
