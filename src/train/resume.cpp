#include "train/resume.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "storage/checkpoint_store.h"
#include "train/model_options.h"
#include "train/noise_watch.h"
#include "train/plan_settings.h"
#include "train/setting_differences.h"
#include "train/setup.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;

constexpr int kStateFormat = 2;

// Keys of [data] that a resume may change.
bool may_change(const std::string& key) { return says_which_data(key) || !is_learned_from(key); }

// A resume does not read model.weights, and compares the data by themselves.
void warn_of_changes(std::vector<Difference> differences, const std::string& source) {
  std::erase_if(differences, [](const Difference& difference) {
    return difference.key == "model.weights" || difference.key.starts_with("data.");
  });
  if (!differences.empty())
    log_warning(concat(source, " was made with other settings; from here on ", in_words(differences)));
}

bool tells_of_checkpoints(const fs::path& metrics_file) {
  return report::last_event(metrics_file, "checkpoint") || report::last_event(metrics_file, "resume");
}

// What is other about the training data; nothing where they are the same, as far as that is known.
std::optional<std::string> difference_of(const Setup& setup, const RunState& state, const std::string& source) {
  const std::string& name = setup.train_set->info().name;
  if (!state.data) {
    const config::DataConfig& now = setup.config.data;
    const config::DataConfig then = config::parse(state.config_toml, concat(source, "/state.json config")).data;
    if (now.name != then.name || now.limit != then.limit || now.samples != then.samples)
      return "data.name, data.limit or data.samples is not what it was";
    log_warning(concat(source, " is of an earlier version and does not say which data it was trained on: that ", name,
                       " still is what it was cannot be checked"));
    if (state.progress.position.batch <= setup.batches_per_epoch) return std::nullopt;
    return concat("data set ", name, " has ", setup.batches_per_epoch, " batches now, and the checkpoint was written ",
                  "after batch ", state.progress.position.batch, " of an epoch");
  }
  if (const auto other = difference(setup.data.test, state.data->test, "test samples", name))
    log_warning(concat(*other, ": evaluations before and after the resume cannot be compared"));
  return difference(setup.data.train, state.data->train, "training samples", name);
}

}  // namespace

bool is_checkpoint(const fs::path& dir) {
  std::error_code ignored;
  return fs::exists(dir / "state.json", ignored) || (storage::step_of(dir) && fs::is_directory(dir, ignored));
}

std::optional<fs::path> find_checkpoint(const fs::path& dir) {
  if (is_checkpoint(dir)) return dir;
  std::error_code ignored;
  if (!fs::is_directory(dir, ignored)) return std::nullopt;
  const storage::CheckpointScan scan = storage::scan_checkpoints(dir / "checkpoints");
  if (scan.newest) return scan.newest;
  const char* const advice = "; nothing was changed: put one back from a copy, or begin anew in another --run-dir";
  if (!scan.damaged.empty())
    throw CheckpointError(concat("no checkpoint in ", (dir / "checkpoints").string(), " is whole", advice));
  if (tells_of_checkpoints(dir / "metrics.jsonl"))
    throw CheckpointError(concat("the checkpoints of the run in ", dir.string(), " are gone", advice));
  return std::nullopt;
}

nlohmann::ordered_json plan_json(const Plan& plan) {
  return {{"stages", plan.devices()},
          {"virtual", plan.virtual_stages},
          {"partition", plan.partition.layers_per_stage},
          {"replicas", plan.replicas},
          {"chunks", plan.chunks},
          {"global_batch", plan.global_batch},
          {"schedule", plan.schedule},
          {"order", plan.order},
          {"frozen_layers", plan.frozen_layers},
          {"recompute", plan.recompute}};
}

namespace {

Plan plan_from(const nlohmann::json& json) {
  return {.partition = {json.at("partition").get<std::vector<int>>()},
          .replicas = json.at("replicas"),
          .chunks = json.at("chunks"),
          .global_batch = json.at("global_batch"),
          .schedule = json.at("schedule"),
          .order = json.value("order", std::string{}),  // this and more are not in those of earlier versions
          .virtual_stages = json.value("virtual", 1),
          .frozen_layers = json.value("frozen_layers", 0),
          .recompute = json.value("recompute", std::vector<bool>{})};
}

nlohmann::json json_of(const FreezeRecord& record) {
  nlohmann::json terms = nlohmann::json::array();
  for (const freeze::Term& term : record.terms) terms.push_back({term.name, term.value});  // null: not finite
  return {{"terms", std::move(terms)},
          {"epoch", record.epoch},
          {"units", record.units},
          {"units_before", record.units_before},
          {"of_units", record.of_units},
          {"predicted_before_s", record.predicted_before_s},
          {"predicted_s", record.predicted_s},
          {"staying_s", record.staying_s}};
}

std::optional<FreezeRecord> freeze_record_from(const nlohmann::json& change) {
  if (!change.contains("freeze")) return std::nullopt;
  const nlohmann::json& json = change.at("freeze");
  std::vector<freeze::Term> terms;
  for (const nlohmann::json& term : json.at("terms")) {
    const bool is_finite = term.at(1).is_number();
    terms.push_back({term.at(0), is_finite ? term.at(1).get<double>() : std::numeric_limits<double>::quiet_NaN()});
  }
  return FreezeRecord{.epoch = json.at("epoch"),
                      .units = json.at("units"),
                      .units_before = json.at("units_before"),
                      .of_units = json.at("of_units"),
                      .predicted_before_s = json.at("predicted_before_s"),
                      .predicted_s = json.at("predicted_s"),
                      .staying_s = json.at("staying_s"),
                      .terms = std::move(terms)};
}

}  // namespace

nlohmann::json RunState::to_json() const {
  nlohmann::json json{{"state_format", kStateFormat},
                      {"step", progress.steps_done},
                      {"position", {{"epoch", progress.position.epoch}, {"batch", progress.position.batch}}},
                      {"evaluation_due", progress.evaluation_due},
                      {"evaluations", progress.evaluations.to_json()},
                      {"optimizer_steps", optimizer_steps},
                      {"plan", nlohmann::json(plan_json(plan))},
                      {"metrics", {{"bytes", metrics.bytes}, {"time_s", metrics.time_s}}},
                      {"config", config_toml}};
  for (const PlanChange& change : changes) {
    json["changes"].push_back(
        {{"after", change.after}, {"plan", nlohmann::json(plan_json(change.plan))}, {"refused", change.is_refused}});
    if (change.freeze) json["changes"].back()["freeze"] = json_of(*change.freeze);
  }
  for (const auto& [parameter, count] : updates) {
    if (count != optimizer_steps) json["optimizer_updates"][parameter] = count;  // it was frozen in some steps
  }
  const bool are_finite = std::ranges::all_of(norms, [](double norm) { return std::isfinite(norm); });
  if (!norms.empty() && are_finite) json["norms"] = norms;
  if (processes > 0) json["processes"] = processes;
  if (!server.is_null()) json["server"] = server;
  if (progress.noise.estimates > 0) json["noise_scale"] = noise_to_json(progress.noise);
  if (data) json["data"] = data->to_json();
  return json;
}

RunState RunState::from_json(const nlohmann::json& json, const std::string& source) {
  try {
    if (json.at("state_format").get<int>() != kStateFormat) {
      throw CheckpointError(concat(source, ": state format ", json.at("state_format").dump(), " is not ", kStateFormat,
                                   "; resume with the version of Sluice that wrote it"));
    }
    RunState state;
    state.progress = {json.at("step"),
                      {json.at("position").at("epoch"), json.at("position").at("batch")},
                      json.at("evaluation_due"),
                      {},
                      {}};
    if (json.contains("noise_scale")) state.progress.noise = noise_from_json(json.at("noise_scale"));
    if (json.contains("evaluations")) state.progress.evaluations = EvalHistory::from_json(json.at("evaluations"));
    state.optimizer_steps = json.at("optimizer_steps");
    state.updates = json.value("optimizer_updates", engine::UpdateCounts{});
    state.plan = plan_from(json.at("plan"));
    for (const auto& change : json.value("changes", nlohmann::json::array()))
      state.changes.push_back(
          {change.at("after"), plan_from(change.at("plan")), change.at("refused"), freeze_record_from(change)});
    state.processes = json.value("processes", 0);
    state.server = json.value("server", nlohmann::json());
    state.norms = json.value("norms", std::vector<double>{});
    state.metrics = {json.at("metrics").at("bytes"), json.at("metrics").at("time_s")};
    state.config_toml = json.at("config");
    if (json.contains("data")) state.data = DataIdentity::from_json(json.at("data"));
    return state;
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(
        concat(source, ": state.json does not hold a training state (", error.what(), "); use another checkpoint"));
  }
}

void check_resumable(const config::Config& config, const RunState& state, const std::string& source, NewData new_data) {
  const config::Config saved = config::parse(state.config_toml, concat(source, "/state.json config"));
  const auto refuse = [&](const std::string& key, const auto& now, const auto& then) {
    if (now == then) return;
    throw ConfigError(
        concat("cannot resume ", source, " with ", key, " = ", now, ": it was made with ", then,
               ", and what was saved depends on it; use the same value or begin a new run with model.weights"));
  };
  for_each_key(
      [&](const std::string& key, const auto& now, const auto& then) {
        // Another dropout changes what is learned, which is said; other classes do not fit the tensors.
        if (key != "dropout" && key != "stochastic_depth" && key != "classes") refuse(concat("model.", key), now, then);
      },
      config.model, saved.model);
  refuse("train.seed", config.train.seed, saved.train.seed);
  refuse("train.global_batch", config.train.global_batch, saved.train.global_batch);
  if (new_data == NewData::kRefused) refuse("data.name", config.data.name, saved.data.name);
  if (new_data == NewData::kRefused && !state.data) {  // else the data themselves are compared
    refuse("data.limit", config.data.limit, saved.data.limit);
    refuse("data.samples", config.data.samples, saved.data.samples);
  }
  for (const auto& [key, now, then] : find_differences(config, saved)) {
    if (key.starts_with("data.") && !may_change(key)) refuse(key, now, then);
  }
  refuse("train.precision", stored_precision(config), stored_precision(saved));
  refuse("train.optimizer", config.train.optimizer, saved.train.optimizer);
  refuse("train.amsgrad", config.train.amsgrad, saved.train.amsgrad);
  if ((config.train.ema_decay > 0) != (saved.train.ema_decay > 0))
    refuse("train.ema_decay", config.train.ema_decay, saved.train.ema_decay);
  warn_of_changes(find_learned_differences(config, saved), source);
}

Progress progress_in(const Setup& setup, const RunState& state, const std::string& source, NewData new_data) {
  const auto other = difference_of(setup, state, source);
  if (!other) return state.progress;
  if (new_data == NewData::kRefused) {
    throw CheckpointError(concat("cannot resume ", source, ": ", *other,
                                 "; give it the same data (data.path, data.limit, data.samples), or go on with what "
                                 "there is now with --accept-new-data"));
  }
  Progress progress = state.progress;
  // As many samples come in the same order: the epoch can go on. Else it ends here, and the next one has every sample.
  const bool has_order = state.data && state.data->train.samples == setup.data.train.samples;
  const bool has_begun = progress.position.batch > 0;
  const bool is_last_epoch = setup.config.train.steps == 0 && progress.position.epoch + 1 >= setup.config.train.epochs;
  if (!has_order && has_begun && is_last_epoch) {
    throw ConfigError(concat("cannot resume ", source, ": ", *other,
                             ", so the epoch that had begun cannot go on, and it is the last one; raise train.epochs "
                             "to train with the new data"));
  }
  if (!has_order && has_begun) progress.position.batch = setup.batches_per_epoch;
  log_warning(concat(
      *other, "; going on with the new data, as --accept-new-data says",
      !has_order && has_begun ? concat(", from the beginning of epoch ", progress.position.epoch + 2) : std::string{}));
  return progress;
}

std::int64_t planned_steps(const config::TrainConfig& train, std::int64_t batches_per_epoch, const Progress& progress) {
  if (train.steps > 0) return train.steps;
  const data::Position& position = progress.position;
  return progress.steps_done + (train.epochs - position.epoch) * batches_per_epoch - position.batch;
}

std::int64_t total_steps_after(const Setup& setup, const Progress& progress) {
  if (ends_early(progress.evaluations, setup.config.train)) return progress.steps_done;
  return planned_steps(setup.config.train, setup.batches_per_epoch, progress);
}

void check_end(std::int64_t total_steps, const RunState& state, const std::string& source) {
  if (state.progress.steps_done > total_steps) {
    throw ConfigError(concat(source, " is at step ", state.progress.steps_done, ", but the run ends at step ",
                             total_steps, "; raise train.steps or train.epochs, or resume from an earlier checkpoint"));
  }
}

namespace {

// A plan that was left open was chosen for a limit.
bool limit_agrees(const config::Config& config, const config::Config& was) {
  const bool is_open = !config.pipeline.partition || config.pipeline.recompute.is_open();
  return !is_open || was.device.memory_limit == config.device.memory_limit;
}

bool recompute_agrees(const config::Config& config, const config::Config& was, const Plan& saved) {
  const config::RecomputeChoice& recompute = config.pipeline.recompute;
  if (recompute.is_open()) return was.pipeline.recompute.is_open();
  if (!recompute.stages.empty() && std::ssize(recompute.stages) != saved.stages()) return false;
  for (int s = 0; s < saved.stages(); ++s)
    if (saved.recomputes(s) != recomputes(recompute, s)) return false;
  return true;
}

// What was set then and is left open now is decided anew.
bool partition_agrees(const config::Config& config, const config::Config& was, const Plan& saved) {
  if (config.pipeline.partition) return *config.pipeline.partition == saved.partition.layers_per_stage;
  return !was.pipeline.partition || saved.stages() == 1;
}

bool chunks_agree(const config::Config& config, const config::Config& was, int processes, const Plan& saved) {
  if (chunks_are_open(config)) return chunks_are_open(was);
  return configured_chunks(config, processes, saved.global_batch) == saved.chunks;
}

}  // namespace

bool plan_can_be_kept(const config::Config& config, const config::Config& was, int processes, const Plan& saved,
                      const std::string& order) {
  const bool schedule_agrees = saved.order == order && (!order.empty() || saved.schedule == config.pipeline.schedule);
  return saved.frozen_layers == 0 && saved.devices() == config.pipeline.stages &&
         saved.virtual_stages == virtual_stages(config) && saved.replicas == config.replicas.local && schedule_agrees &&
         partition_agrees(config, was, saved) && chunks_agree(config, was, processes, saved) &&
         limit_agrees(config, was) && recompute_agrees(config, was, saved);
}

}  // namespace sluice::train
