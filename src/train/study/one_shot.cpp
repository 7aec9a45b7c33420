#include "train/study/one_shot.h"

#include <cmath>
#include <limits>
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

storage::TensorMap read_batch_file(const fs::path& file) {
  try {
    return storage::read_safetensors(file).tensors;
  } catch (const CheckpointError& error) {
    throw DataError(error.what());
  }
}

[[noreturn]] void reject_tensor(const fs::path& file, const char* name, const at::Tensor& tensor,
                                const std::string& needed) {
  throw DataError(file.string(), ": '", name, "' is ", tensor.sizes(), ", but ", needed);
}

// key: raises `count`; null if none does.
void check_numbers(const fs::path& file, const char* name, const at::Tensor& values, const char* what,
                   std::int64_t count, const char* key) {
  const auto low = values.min().item<std::int64_t>(), high = values.max().item<std::int64_t>();
  if (low >= 0 && high < count) return;
  throw DataError(
      file.string(), ": '", name, "' holds ", low < 0 ? low : high, ", but the model has ", count, " ", what, ", 0 to ",
      count - 1, low < 0 || key == nullptr ? "; correct the file" : concat("; set ", key, " = ", high + 1, " or more"));
}

at::Tensor as_integers(const fs::path& file, const char* name, const at::Tensor& tensor, const char* what) {
  if (!at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false)) {
    throw DataError(file.string(), ": '", name, "' is ", c10::toString(tensor.scalar_type()), ", but ", what,
                    " are integers");
  }
  return tensor.to(at::kLong);
}

pipeline::MicroBatch image_batch(const fs::path& file, const storage::TensorMap& tensors,
                                 const models::ModelOptions& model) {
  const at::Tensor targets = as_integers(file, "targets", tensors.at("targets"), "classes");
  const at::Tensor inputs = tensors.at("inputs").to(model.dtype);
  const std::vector<std::int64_t> sample{model.channels, model.image_size, model.image_size};
  if (inputs.dim() != 4 || inputs.sizes().slice(1).vec() != sample || inputs.size(0) == 0) {
    reject_tensor(file, "inputs", inputs,
                  concat("the model needs [n, ", sample[0], ", ", sample[1], ", ", sample[2],
                         "] with n > 0; set model.channels and model.image_size to those of the batch"));
  }
  if (targets.dim() != 1 || targets.size(0) != inputs.size(0))
    reject_tensor(file, "targets", targets, concat("there are ", inputs.size(0), " inputs"));
  check_numbers(file, "targets", targets, "classes", model.classes, "model.classes");
  return {{inputs}, {targets}, at::arange(inputs.size(0))};
}

// A field of a batch of texts: [n, T], or [n] if a sample has one number.
at::Tensor text_field(const fs::path& file, const at::Tensor& tensor, const models::TensorInfo& info,
                      at::IntArrayRef sizes) {
  const char* const name = info.name.c_str();
  const bool is_number = info.bound == 0;
  const at::Tensor values = is_number
                                ? tensor.to(at::kDouble)
                                : as_integers(file, name, tensor, info.name == data::kInputs ? "tokens" : "its values");
  const at::IntArrayRef needed = info.sizes.empty() ? sizes.slice(0, 1) : sizes;
  if (values.sizes() != needed) reject_tensor(file, name, tensor, concat("the inputs are ", sizes));
  return values;
}

at::Tensor text_input(const fs::path& file, const at::Tensor& tensor, const models::TensorInfo& info,
                      at::IntArrayRef sizes) {
  const at::Tensor values = text_field(file, tensor, info, sizes);
  const bool is_mask = info.lowest > 0;  // numbers of documents
  const bool are_tokens = info.name == data::kInputs;
  check_numbers(file, info.name.c_str(), values, are_tokens ? "tokens" : "values",
                is_mask ? std::numeric_limits<std::int64_t>::max() : info.bound,
                are_tokens ? "model.vocabulary" : nullptr);
  return values;
}

at::Tensor text_target(const fs::path& file, const at::Tensor& tensor, const models::TensorInfo& info, const char* key,
                       at::IntArrayRef sizes) {
  const at::Tensor values = text_field(file, tensor, info, sizes);
  if (info.bound == 0) return values;
  const at::Tensor counted = values.masked_select(values.ne(task::kNoTarget));
  if (counted.numel() == 0) {
    throw DataError(file.string(), ": every entry of '", info.name, "' is ", task::kNoTarget,
                    ", which the loss ignores; give at least one other target");
  }
  if (info.name != data::kTargets) {
    check_numbers(file, info.name.c_str(), counted, "positions", info.bound, nullptr);
  } else {
    check_numbers(file, info.name.c_str(), counted, key == std::string("model.vocabulary") ? "tokens" : "classes",
                  info.bound, key);
  }
  return values;
}

pipeline::MicroBatch text_batch(const fs::path& file, const storage::TensorMap& tensors,
                                const models::ModelOptions& model) {
  const models::Model shapes = models::make_without_values(model);
  const at::Tensor& tokens = tensors.at(data::kInputs);
  if (tokens.dim() != 2 || tokens.numel() == 0 || tokens.size(1) > model.context) {
    reject_tensor(file, data::kInputs, tokens,
                  concat("the model needs [n, T] with n > 0 and T from 1 to its context, ", model.context));
  }
  nn::Tensors inputs, targets;
  for (const models::TensorInfo& info : shapes.inputs) {
    const auto found = tensors.find(info.name);
    inputs.push_back(found == tensors.end() ? at::Tensor() : text_input(file, found->second, info, tokens.sizes()));
  }
  while (inputs.size() > 1 && !inputs.back().defined()) inputs.pop_back();
  const char* const key = shapes.classes == model.vocabulary ? "model.vocabulary" : "model.classes";
  for (const models::TensorInfo& info : shapes.targets)
    targets.push_back(text_target(file, tensors.at(info.name), info, key, tokens.sizes()));
  return {inputs, targets, at::arange(tokens.size(0))};
}

// For a model from a file: by the names of forward()'s arguments; a single one may also be called `inputs`.
pipeline::MicroBatch batch_of_own_fields(const fs::path& file, storage::TensorMap tensors, const models::Model& model) {
  if (model.inputs.size() == 1 && tensors.contains(data::kInputs))
    tensors.emplace(model.inputs.front().name, tensors.at(data::kInputs));
  std::int64_t samples = -1;
  const auto take = [&](const models::TensorInfo& info) {
    const auto found = tensors.find(info.name);
    if (found == tensors.end()) {
      if (info.is_optional) return at::Tensor();
      throw DataError(file.string(), " has no tensor '", info.name, "', which the model takes; add it");
    }
    if (samples < 0 && found->second.dim() > 0) samples = found->second.size(0);
    if (samples < 1 || found->second.dim() == 0 || found->second.size(0) != samples)
      reject_tensor(file, info.name.c_str(), found->second, concat("needs one entry for each sample"));
    if (found->second.dim() != std::ssize(info.sizes) + 1)
      reject_tensor(file, info.name.c_str(), found->second, concat("needs ", info.sizes.size() + 1, " dimensions"));
    return found->second;
  };
  nn::Tensors inputs, targets;
  for (const models::TensorInfo& info : model.inputs) inputs.push_back(take(info));
  for (const models::TensorInfo& info : model.targets) targets.push_back(take(info));
  return {inputs, targets, at::arange(samples)};
}

pipeline::MicroBatch read_batch(const fs::path& file, const models::ModelOptions& model, const task::Task& task) {
  const storage::TensorMap tensors = read_batch_file(file);
  if (model.has_own_fields) return batch_of_own_fields(file, tensors, models::make_without_values(model));
  std::vector<std::string> needed{task.inputs().front()};
  needed.insert(needed.end(), task.targets().begin(), task.targets().end());
  for (const std::string& name : needed) {
    if (!tensors.contains(name))
      throw DataError(file.string(), " has no tensor '", name, "'; a batch needs '", join(needed, "', '"), "'");
  }
  return models::kind_of(model) == SampleKind::kTokens ? text_batch(file, tensors, model)
                                                            : image_batch(file, tensors, model);
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
  if (!evaluated.checkpoint.empty())
    return saved_constants(evaluated.state, setup.model, evaluated.checkpoint.string());
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
