#include "train/run/resume.h"

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "train/setup/model_options.h"
#include "train/setup/setting_differences.h"
#include "train/setup/setup.h"

namespace sluice::train {
namespace {

bool may_change(const std::string& key) { return selects_data(key) || !is_learned_from(key); }

void warn_of_changes(std::vector<Difference> differences, const std::string& source) {
  std::erase_if(differences, [](const Difference& difference) {
    return difference.key == "model.weights" || difference.key == "model.lora_weights" ||
           difference.key.starts_with("data.");
  });
  if (!differences.empty())
    log_warning(source, " was written with other settings; from here on ", in_words(differences));
}

std::optional<std::string> difference_of(const Setup& setup, const RunState& state, const std::string& source) {
  const std::string& name = setup.train_set->info().name;
  if (!state.data) {
    const config::DataConfig& now = setup.config.data;
    const config::DataConfig then = config::parse(state.config_toml, concat(source, "/state.json config")).data;
    if (now.name != then.name || now.limit != then.limit || now.samples != then.samples)
      return "data.name, data.limit or data.samples has changed";
    log_warning(source,
                " is from an earlier version of Sluice and does not identify its training data: cannot check whether ",
                name, " is unchanged");
    if (state.progress.position.batch <= setup.batches_per_epoch) return std::nullopt;
    return concat("data set ", name, " has ", setup.batches_per_epoch, " batches, but the checkpoint was written ",
                  "after batch ", state.progress.position.batch, " of an epoch");
  }
  if (const auto other = difference(setup.data.test, state.data->test, "test samples", name))
    log_warning(*other, ": evaluations from before the resume are not comparable with later ones");
  return difference(setup.data.train, state.data->train, "training samples", name);
}

// With as many samples the order is the same, unless it depends on their lengths.
bool has_order_of(const RunState& state, const Setup& setup) {
  return state.data && state.data->train.samples == setup.data.train.samples && !setup.config.data.by_length;
}

template <typename Value>
std::string text_of(const Value& value) {
  return concat(value);
}
std::string text_of(const std::vector<std::string>& words) { return concat("[", join(words, ", "), "]"); }

// Other classes do not fit the tensors, and the content of a file is compared elsewhere. Dropout changes what is
// learned, which gives a warning.
bool may_differ(const std::string& key) {
  return key == "file" || key == "classes" || key == "stochastic_depth" || key.ends_with("dropout");
}

}  // namespace

void check_resumable(const config::Config& config, const RunState& state, const std::string& source, NewData new_data) {
  const config::Config saved = config::parse(state.config_toml, concat(source, "/state.json config"));
  const auto refuse = [&](const std::string& key, const auto& now, const auto& then) {
    if (now == then) return;
    throw ConfigError(
        concat("cannot resume ", source, " with ", key, " = ", now, ": it was written with ", then,
               ", and its tensors depend on it; use the same value, or start a new run with model.weights"));
  };
  for_each_key(
      [&](const std::string& key, const auto& now, const auto& then) {
        if (may_differ(key)) return;
        refuse(concat("model.", key), text_of(now), text_of(then));
      },
      config.model, saved.model);
  refuse("train.seed", config.train.seed, saved.train.seed);
  refuse("train.global_batch", config.train.global_batch, saved.train.global_batch);
  if (new_data == NewData::kRefused) refuse("data.name", config.data.name, saved.data.name);
  if (new_data == NewData::kRefused && !state.data) {  // otherwise the data themselves are compared
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

void warn_of_other_arithmetic(const Setup& setup, const RunState& state, const std::string& source) {
  const std::string own = arithmetic_of(setup.devices);
  if (!setup.config.train.is_reproducible_by_layout() || state.arithmetic.empty() || state.arithmetic == own) return;
  log_warning(
      source, " was computed on ", state.arithmetic, ", but this process uses ", own,
      ". From here on, results may differ in their last bits; resume there for equal bits (train.reproducible)");
}

Progress progress_in(const Setup& setup, const RunState& state, const std::string& source, NewData new_data) {
  const auto other = difference_of(setup, state, source);
  if (!other) return state.progress;
  if (new_data == NewData::kRefused) {
    throw CheckpointError("cannot resume ", source, ": ", *other,
                          "; use the same data (data.path, data.limit, data.samples), or pass --accept-new-data to "
                          "continue with the new data");
  }
  Progress progress = state.progress;
  const bool has_order = has_order_of(state, setup);  // so the epoch continues; otherwise it ends here
  const bool has_begun = progress.position.batch > 0;
  const bool is_last_epoch = setup.config.train.steps == 0 && progress.position.epoch + 1 >= setup.config.train.epochs;
  if (!has_order && has_begun && is_last_epoch) {
    throw ConfigError("cannot resume ", source, ": ", *other,
                      ", so its unfinished epoch cannot continue, and it is the last one; raise train.epochs to train "
                      "with the new data");
  }
  if (!has_order && has_begun) progress.position.batch = setup.batches_per_epoch;
  log_warning(
      *other, "; continuing with the new data (--accept-new-data)",
      !has_order && has_begun ? concat(" from the start of epoch ", progress.position.epoch + 2) : std::string{});
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
    throw ConfigError(source, " is at step ", state.progress.steps_done, ", but the run ends at step ", total_steps,
                      "; raise train.steps or train.epochs, or resume from an earlier checkpoint");
  }
}

}  // namespace sluice::train
