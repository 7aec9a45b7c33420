#include "train/serve/server_run.h"

#include <algorithm>
#include <map>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/divided_up.h"
#include "core/log.h"
#include "core/text.h"
#include "engine/state.h"
#include "train/setup/server_settings.h"
#include "train/setup/step_batch.h"
#include "train/setup/worker_share.h"

namespace sluice::train {

pipeline::MicroBatch read_lease(data::SampleReader& reader, const data::Lease& lease, const task::Task& task) {
  const int view = reader.view_in(lease.epoch);
  const data::Samples samples = reader.read(lease.samples, view);
  return {.inputs = inputs_in_order(samples.fields, task),
          .targets = in_order(samples.fields, task.targets()),
          .sample_ids = at::tensor(lease.samples, at::kLong),
          .view = view,
          .pixel_scale = samples.pixel_scale};
}

namespace {

// An update that crosses the end of an epoch counts as its last batch.
data::Batch batch_of_update(const ps::ServerProgress& before, const ps::ServerProgress& after, const Setup& setup) {
  const std::int64_t samples = setup.train_set->size(), unit = samples_of_update(setup);
  const std::int64_t batches = std::max<std::int64_t>(divided_up(samples, unit), 2);  // at least one besides the last
  const std::int64_t begun = std::min(before.examples % samples / unit, batches - 2);
  return {.epoch = before.examples / samples,
          .batch = ends_epoch(before, after, samples) ? batches - 1 : begun,
          .batches = batches,
          .global_size = after.examples - before.examples};
}

StepStats stats_of(const std::vector<ps::PushDone>& pushes, bool counts_scores) {
  StepStats stats;
  ScoreSums scores;
  for (const ps::PushDone& push : pushes) {
    stats.samples += push.record.examples;
    stats.targets += push.record.targets;
    scores += {.loss_sum = push.scores.loss_sum, .targets = push.record.targets, .sums = push.scores.sums};
  }
  if (stats.targets > 0) stats.loss = scores.loss();
  if (counts_scores) stats.scores = scores;
  return stats;
}

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

nlohmann::ordered_json fields_of_push(const ps::PushDone& push, std::int64_t version) {
  return {{"step", version},
          {"worker", static_cast<int>(push.record.worker)},
          {"life", push.record.incarnation},
          {"sequence", push.record.sequence},
          {"version", push.record.base_version},
          {"staleness", push.staleness},
          {"examples", push.record.examples},
          {"compute_s", push.times.compute_s},
          {"idle_s", push.times.idle_s},
          {"send_s", push.times.send_s},
          {"sleep_s", push.times.stall_s}};
}

constexpr const char* kTop1 = "top1";  // "accuracy" in the formats of these projects

// Line in the format of the anytime project's master; empty unless the policy is "amb" or "fmb".
std::string describe_update(const Setup& setup, const ps::UpdateRecord& done, const StepStats& stats, double seconds) {
  const std::string& policy = setup.config.ps.policy;
  const std::int64_t every = setup.config.log.every;
  if ((policy != "amb" && policy != "fmb") || done.update.version % every != 0) return {};
  std::string line =
      concat("step = ", done.update.version, ", loss = ", fixed(stats.loss, 4), ", learning_rate = ", done.lr);
  const Score* const main = stats.scores ? main_score(setup.task->scores(), *stats.scores) : nullptr;
  if (main != nullptr && stats.targets > 0) {
    line += main->name == kTop1 ? concat(", accuracy = ", fixed(main->of(*stats.scores) / 100, 4))
                                : concat(", ", main->name, " = ", fixed(main->of(*stats.scores), 4));
  }
  return line + concat(" (", fixed(seconds, 3), " sec)");
}

// In the format of the dual-batch-size experiments. The log counts epochs from 1, `epoch` from 0.
std::string describe_round(const Setup& setup, const ps::PushDone& push, std::int64_t epoch) {
  const int worker = static_cast<int>(push.record.worker);
  const ScoreSums sums{.loss_sum = push.scores.loss_sum,
                       .targets = std::max<std::int64_t>(push.record.targets, 1),
                       .sums = push.scores.sums};
  const Score* const main = main_score(setup.task->scores(), sums);
  return concat("Epoch ", epoch + 1, " BS ", share_of(setup, worker).batch, " LR ", own_rate(setup, push), ": worker ",
                worker, ", push ", push.record.sequence, ", train loss ", fixed(sums.loss(), 4),
                main == nullptr ? ""
                                : concat(", ", main->name == kTop1 ? "accuracy" : main->name, " ",
                                         fixed(main->of(sums), 2), main->is_percent ? " %" : ""));
}

}  // namespace

RecordedStep step_of(const Setup& setup, const UpdateMade& update) {
  const ps::UpdateRecord& done = update.done;
  const bool is_local = workers_update(setup.config);
  RecordedStep step{.batch = batch_of_update(update.before, update.after, setup),
                    .stats = stats_of(update.pushes, update.counts_scores)};
  for (const ps::PushDone& push : update.pushes) {
    nlohmann::ordered_json& fields = step.events.emplace_back("push", fields_of_push(push, done.update.version)).second;
    if (!is_local) continue;
    fields["lr"] = own_rate(setup, push);
    log_info(describe_round(setup, push, step.batch.epoch));
  }
  step.lr = is_local ? mean_own_rate(setup, update.pushes) : done.lr;
  if (!is_local && setup.config.train.clip_norm > 0) step.stats.gradient_norm = done.gradient_norm;
  const std::string text = describe_update(setup, done, step.stats, update.seconds);
  if (!text.empty()) log_info(text);
  return step;
}

std::vector<std::pair<std::string, std::vector<at::Tensor>>> optimizer_in(const engine::Engine& engine,
                                                                          const ps::Layout& layout) {
  std::map<std::string, std::vector<at::Tensor>> by_name;  // by state name: [parameter], flat
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
