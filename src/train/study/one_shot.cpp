#include "train/study/one_shot.h"

#include <cmath>
#include <utility>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "data/loader.h"
#include "engine/divergence.h"
#include "engine/state.h"
#include "models/foreign_weights.h"
#include "report/run_totals.h"
#include "storage/files.h"
#include "storage/weights_files.h"
#include "task/task.h"
#include "train/plan/choose_plan.h"
#include "train/plan/composition.h"
#include "train/plan/plan_changes.h"
#include "train/plan/run_facts.h"
#include "train/setup/judge.h"
#include "train/setup/machine_fit.h"
#include "train/setup/noise_watch.h"
#include "train/setup/run_state.h"
#include "train/setup/schedule_file.h"
#include "train/setup/setup.h"
#include "train/setup/starting_weights.h"
#include "train/setup/step_batch.h"
#include "train/study/batch_file.h"
#include "train/study/saved_config.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;

struct EvaluatedModel {
  config::Config config;
  storage::TensorMap tensors;
  fs::path file;
  fs::path checkpoint;
  std::int64_t step = 0;
  std::optional<std::string> schedule_text;  // of the checkpoint
  nlohmann::json state;
};

EvaluatedModel evaluated_model(const EvaluationOptions& options) {
  EvaluatedModel evaluated;
  if (!options.config_file.empty()) evaluated.config = config::load(options.config_file, options.sets);
  if (options.checkpoint.empty()) {
    if (options.config_file.empty()) {
      throw ConfigError("--weights ", options.weights.string(), " does not name its model; ",
                        "pass a configuration: sluice eval CONFIG --weights FILE");
    }
    evaluated.file = storage::resolve_weights(options.weights);
    evaluated.tensors = storage::read_weights(evaluated.file);
    return evaluated;
  }
  evaluated.checkpoint = checkpoint_in("--checkpoint", options.checkpoint);
  storage::CheckpointContents contents = storage::load_checkpoint(evaluated.checkpoint);
  if (options.config_file.empty())
    evaluated.config = config_of_checkpoint(evaluated.checkpoint, contents.state, options.sets);
  if (options.takes_average && contents.average.empty()) {
    throw ConfigError("--ema: ", evaluated.checkpoint.string(),
                      " has no averaged weights; remove --ema, or train with train.ema_decay");
  }
  evaluated.file = evaluated.checkpoint / (options.takes_average ? "ema.safetensors" : "model.safetensors");
  evaluated.tensors = std::move(options.takes_average ? contents.average : contents.model);
  evaluated.step = contents.state.at("step");
  evaluated.schedule_text = kept_schedule(evaluated.config, contents.state, evaluated.checkpoint.string());
  evaluated.state = std::move(contents.state);
  return evaluated;
}

at::Tensor scalar(double number) { return at::full({}, number, at::kDouble); }

pipeline::MicroBatch first_training_batch(const Setup& setup) {
  data::LoaderOptions options = train_loader_options(setup);
  options.augment = {};
  options.mix = {};
  options.threads = 0;
  data::Loader loader(*setup.train_set, options);
  return as_micro_batch(*loader.next(), *setup.task);
}

// Makes a step's update. It writes the file even if loss or gradient are not finite and the update is refused.
void apply_and_write(engine::TrainStep& step, const engine::Composition& composition,
                     const engine::TrainStep::Gradients& gradients, const engine::StepBatch& batch, double lr,
                     const SingleStepOptions& options) {
  storage::TensorMap out{{"loss", scalar(gradients.stats.loss)}, {"logits", gradients.logits}};
  for (const auto& [name, gradient] : engine::gradient_tensors(composition))
    out["grad/" + name] = gradient.div(gradients.divisor);
  if (const auto noise = noise_estimate(gradients.stats)) {
    out["noise_trace"] = scalar(noise->trace);
    out["noise_squared_norm"] = scalar(noise->squared_norm);
  }
  const auto write = [&] {
    for (const auto& [name, tensor] : engine::parameter_tensors(composition)) out["param/" + name] = tensor;
    for (const auto& [name, tensor] : engine::buffer_tensors(composition)) out["buffer/" + name] = tensor;
    storage::write_safetensors(options.out, out);
  };
  try {
    const StepStats stats = step.apply(gradients, batch, 0, lr);
    if (stats.gradient_norm) out["gradient_norm"] = scalar(*stats.gradient_norm);
  } catch (const Error& error) {
    const bool is_not_finite = error.exit_code() == ExitCode::kDiverged || error.exit_code() == ExitCode::kData;
    if (!is_not_finite) throw;
    write();
    const bool blames_file = error.exit_code() == ExitCode::kData && !options.batch.empty();
    throw Error(error.exit_code(), concat(blames_file ? options.batch.string() + ": " : std::string(), error.what(),
                                          "; the results from before the update are in ", options.out.string()));
  }
  write();
}

Constants constants_of(const EvaluatedModel& evaluated, const Setup& setup) {
  check_tokens_of_weights(evaluated.file, setup.config, setup.model, setup.test_set->info());
  if (!evaluated.checkpoint.empty()) {
    Constants constants = saved_constants(evaluated.state, setup.model, evaluated.checkpoint.string());
    check_model_file(constants, setup.model, evaluated.checkpoint.string());
    return constants;
  }
  return constants_of_weights(evaluated.file, setup.config, setup.model);
}

void settle_for_evaluation(config::Config& config, const EvaluationOptions& options) {
  if (!options.logits.empty()) config.device.tf32 = false;  // exact float32, for comparisons
  config.pipeline.recompute = {};                           // no backward follows
  config.device.cuda_graphs = false;                        // graphs are for training steps
  if (options.of_validation && config.data.validation == 0) {
    throw ConfigError(
        "--validation: data.validation is 0, so there is no validation set; remove --validation to evaluate the test "
        "set");
  }
  if (!options.of_validation) config.data.validation = 0;
  config.train.warmup_steps = 0;  // of training; the evaluated data may be smaller
  config.train.warmup_epochs = 0;
}

// A text model computes as the config.json beside its weights says, which replaces model.config unless this alone names
// the classes.
void take_own_config(EvaluatedModel& evaluated) {
  std::string& config = evaluated.config.model.config;
  const fs::path own = storage::folder_of_weights(evaluated.file) / "config.json";
  std::error_code ignored;
  if (!models::is_text(models::ModelOptions(evaluated.config.model)) || !fs::is_regular_file(own, ignored)) return;
  const auto names_in = [](const fs::path& file) { return models::own_label_names(storage::read_object(file)); };
  if (names_in(own).empty() && !config.empty() && !names_in(config).empty()) return;
  config = own.string();
}

// What an evaluation takes from the outputs of the model beside the scores.
class Outputs {
 public:
  Outputs(const Setup& setup, const EvaluationOptions& options)
      : options_(options), labels_name_(setup.task->targets().front()), judge_(make_judge(setup)) {
    if (!options.predictions.empty() && !judge_)
      throw ConfigError("--predictions writes answers to questions; model.task is not \"qa\", so leave it out");
  }

  [[nodiscard]] bool are_wanted() const { return judge_ || !options_.logits.empty(); }

  void add(const data::Batch& batch, const at::Tensor& outputs) {
    if (judge_) judge_->add(batch.sample_ids, outputs);
    if (options_.logits.empty()) return;
    if (!logits_.empty() && logits_.back().sizes().slice(1) != outputs.sizes().slice(1))
      throw ConfigError("--logits: the batches have samples of different lengths; add --set data.pad=max");
    logits_.push_back(outputs);
    labels_.push_back(batch.at(labels_name_));
  }

  // Writes the files. Returns the sums of the judge's scores.
  [[nodiscard]] std::vector<double> finish(comm::ReplicaSync& sync) {
    if (!options_.logits.empty())
      storage::write_safetensors(options_.logits, {{"logits", at::cat(logits_)}, {"labels", at::cat(labels_)}});
    if (!judge_) return {};
    std::vector<double> sums = judge_->finish(sync);
    if (!options_.predictions.empty())
      storage::write_text_atomically(options_.predictions, judge_->predictions().dump(1) + "\n");
    return sums;
  }

 private:
  const EvaluationOptions& options_;
  const std::string labels_name_;
  const std::unique_ptr<Judge> judge_;
  std::vector<at::Tensor> logits_, labels_;
};

}  // namespace

Evaluation run_evaluation(const EvaluationOptions& options) {
  if (!options.logits.empty())
    storage::check_output("--logits", options.logits, {options.config_file, options.weights});
  if (!options.predictions.empty())
    storage::check_output("--predictions", options.predictions, {options.config_file, options.weights});
  EvaluatedModel evaluated = evaluated_model(options);
  settle_for_evaluation(evaluated.config, options);
  evaluated.config.model.weights = evaluated.file.string();
  take_own_config(evaluated);
  Setup setup = make_setup(evaluated.config, {}, SetupFor::kEvaluation, evaluated.schedule_text);
  setup.take(constants_of(evaluated, setup));
  engine::Engine engine(decide_plan(setup), engine_options(setup));
  engine::Composition& composition = engine.composition();
  if (evaluated.checkpoint.empty()) {
    evaluated.tensors =
        models::to_our_names(setup.model, std::move(evaluated.tensors), evaluated.file.string()).tensors;
    evaluated.tensors = with_adapters(setup.model, std::move(evaluated.tensors), setup.config.model.lora_weights,
                                      evaluated.file.string());
  }
  engine::load_model(composition, evaluated.tensors, evaluated.file.string());
  engine::TrainStep& step = engine.step();
  data::Loader loader(*setup.test_set, eval_loader_options(setup));
  Outputs outputs(setup, options);
  ScoreSums sums;
  std::int64_t evaluated_samples = 0;
  while (const auto batch = loader.next()) {
    at::Tensor of_batch;
    const auto samples = as_micro_batch(*batch, *setup.task);
    sums += step.evaluate(samples, /*stop=*/false, outputs.are_wanted() ? &of_batch : nullptr).scores;
    evaluated_samples += samples.samples();
    if (outputs.are_wanted()) outputs.add(*batch, of_batch);
  }
  const std::vector<double> of_answers = outputs.finish(*composition.sync);
  sums.sums.insert(sums.sums.end(), of_answers.begin(), of_answers.end());
  if (!std::isfinite(sums.loss())) {
    throw DivergedError("the loss of these weights on the test set is ", fixed(sums.loss(), 4),
                        ": their run diverged, or they are for other data; use an earlier checkpoint");
  }
  return {.sums = sums,
          .scores = setup.task->scores(),
          .checkpoint = evaluated.checkpoint,
          .step = evaluated.step,
          .samples = evaluated_samples};
}

double run_single_step(const config::Config& wanted, const SingleStepOptions& options) {
  config::Config config = wanted;
  config.device.tf32 = false;         // exact float32, to compare with another framework
  config.device.cuda_graphs = false;  // the step is not repeated
  storage::check_output(
      "--out", options.out,
      {options.config_file, options.weights, options.batch, config.model.weights, config.pipeline.order});
  if (!options.weights.empty()) config.model.weights = options.weights.string();
  Setup setup = make_setup(config, {}, options.batch.empty() ? SetupFor::kRun : SetupFor::kOwnBatch);
  warn_of_unusual_settings(setup);
  log_changes_left_out(config);
  fs::path weights = config.model.weights;
  if (!weights.empty()) {
    weights = storage::resolve_weights(weights);
    if (options.batch.empty()) check_tokens_of_weights(weights, config, setup.model, setup.train_set->info());
    setup.take(constants_of_weights(weights, config, setup.model));
  }
  engine::Engine engine(decide_plan(setup), engine_options(setup));
  engine::Composition& composition = engine.composition();
  if (!weights.empty()) load_starting_weights(composition, setup.model, weights, config.model.lora_weights);
  const auto batch =
      options.batch.empty() ? first_training_batch(setup) : read_batch(options.batch, setup.model, *setup.task);

  engine::TrainStep& step = engine.step();
  const auto gradients = step.compute_gradients(
      batch, 0, composition.plan.chunks, {.keep_logits = true, .take_norms = config.train.noise_scale_every_steps > 0});
  apply_and_write(step, composition, gradients, batch, lr_schedule(setup).at(0), options);
  return gradients.stats.loss;
}

}  // namespace sluice::train
