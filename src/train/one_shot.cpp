#include "train/one_shot.h"

#include <cmath>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/error.h"
#include "data/loader.h"
#include "train/choose_plan.h"
#include "train/records/storage.h"
#include "train/resume.h"
#include "train/setup.h"
#include "train/state.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;

Composition composition_for(const Setup& setup) { return make_composition(setup, decide_plan(setup)); }

void load_weights(Composition& composition, const fs::path& file) {
  load_model(composition, read_safetensors(file).tensors, file.string());
}

fs::path model_file_of(const fs::path& dir) {
  const auto found = find_checkpoint((dir / "").parent_path());
  if (!found) {
    throw CheckpointError(concat("--checkpoint ", dir.string(),
                                 ": there is no checkpoint; give a run directory or one of its checkpoints/step-N"));
  }
  verify_checkpoint(*found);
  return *found / "model.safetensors";
}

// A batch is data: what is wrong with its file is a DataError.
TensorMap read_batch_file(const fs::path& file) {
  try {
    return read_safetensors(file).tensors;
  } catch (const CheckpointError& error) {
    throw DataError(error.what());
  }
}

[[noreturn]] void reject_tensor(const fs::path& file, const char* name, const at::Tensor& tensor,
                                const std::string& needed) {
  throw DataError(concat(file.string(), ": '", name, "' is ", tensor.sizes(), ", but ", needed));
}

// `values`: those of tensor `name` that have to be 0 to count - 1. what: "classes".
void check_numbers(const fs::path& file, const char* name, const at::Tensor& values, const char* what,
                   std::int64_t count) {
  const auto low = values.min().item<std::int64_t>(), high = values.max().item<std::int64_t>();
  if (low >= 0 && high < count) return;
  throw DataError(
      concat(file.string(), ": '", name, "' holds ", low < 0 ? low : high, ", but ", what, " are 0 to ", count - 1));
}

at::Tensor as_integers(const fs::path& file, const char* name, const at::Tensor& tensor, const char* what) {
  if (!at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false)) {
    throw DataError(concat(file.string(), ": '", name, "' is ", c10::toString(tensor.scalar_type()), ", but ", what,
                           " are integers"));
  }
  return tensor.to(at::kLong);
}

pipeline::MicroBatch image_batch(const fs::path& file, const TensorMap& tensors, const models::ModelOptions& model) {
  const at::Tensor targets = as_integers(file, "targets", tensors.at("targets"), "classes");
  const at::Tensor inputs = tensors.at("inputs").to(model.dtype);
  const std::vector<std::int64_t> sample{model.channels, model.image_size, model.image_size};
  if (inputs.dim() != 4 || inputs.sizes().slice(1).vec() != sample || inputs.size(0) == 0) {
    reject_tensor(file, "inputs", inputs,
                  concat("the model needs [n, ", sample[0], ", ", sample[1], ", ", sample[2], "] with n > 0"));
  }
  if (targets.dim() != 1 || targets.size(0) != inputs.size(0))
    reject_tensor(file, "targets", targets, concat("there are ", inputs.size(0), " inputs"));
  check_numbers(file, "targets", targets, "classes", model.classes);
  return {inputs, targets, at::arange(inputs.size(0))};
}

pipeline::MicroBatch token_batch(const fs::path& file, const TensorMap& tensors, const models::ModelOptions& model) {
  const at::Tensor inputs = as_integers(file, "inputs", tensors.at("inputs"), "tokens");
  const at::Tensor targets = as_integers(file, "targets", tensors.at("targets"), "tokens");
  if (inputs.dim() != 2 || inputs.numel() == 0 || inputs.size(1) > model.context) {
    reject_tensor(file, "inputs", inputs,
                  concat("the model needs [n, T] with n > 0 and T from 1 to its context, ", model.context));
  }
  if (targets.sizes() != inputs.sizes())
    reject_tensor(file, "targets", targets, concat("the inputs are ", inputs.sizes()));
  if (count_targets(targets) == 0)
    throw DataError(concat(file.string(), ": every one of 'targets' is ", kNoTarget, ", which counts nowhere"));
  check_numbers(file, "inputs", inputs, "tokens", model.vocabulary);
  check_numbers(file, "targets", targets.masked_select(targets.ne(kNoTarget)), "tokens", model.vocabulary);
  return {inputs, targets, at::arange(inputs.size(0))};
}

pipeline::MicroBatch read_batch(const fs::path& file, const models::ModelOptions& model) {
  const TensorMap tensors = read_batch_file(file);
  for (const char* name : {"inputs", "targets"}) {
    if (!tensors.contains(name))
      throw DataError(concat(file.string(), " has no tensor '", name, "'; a batch needs 'inputs' and 'targets'"));
  }
  return models::kind_of(model.name) == SampleKind::kTokens ? token_batch(file, tensors, model)
                                                            : image_batch(file, tensors, model);
}

pipeline::MicroBatch first_training_batch(const Setup& setup) {
  data::LoaderOptions options = train_loader_options(setup);
  options.augment = {};
  options.workers = 0;
  data::Loader loader(*setup.train_set, options);
  return as_micro_batch(*loader.next());
}

}  // namespace

EvalCounts run_evaluation(const config::Config& config, const EvaluationOptions& options) {
  if (!options.logits.empty()) check_output("--logits", options.logits, {options.config_file, options.weights});
  config::Config for_evaluation = config;
  for_evaluation.pipeline.recompute = "none";  // nothing to measure for what has no backward
  const Setup setup = make_setup(for_evaluation);
  Composition composition = composition_for(setup);
  load_weights(composition, options.checkpoint.empty() ? options.weights : model_file_of(options.checkpoint));
  TrainStep step(composition, step_options(setup));
  data::Loader loader(*setup.test_set, eval_loader_options(setup));
  EvalCounts counts;
  std::vector<at::Tensor> logits, labels;
  while (const auto batch = loader.next()) {
    at::Tensor of_batch;
    at::Tensor* const wanted = options.logits.empty() ? nullptr : &of_batch;
    counts += step.evaluate(as_micro_batch(*batch), /*stop=*/false, wanted).counts;
    if (options.logits.empty()) continue;
    logits.push_back(of_batch);
    labels.push_back(batch->targets);
  }
  if (!options.logits.empty())
    write_safetensors(options.logits, {{"logits", at::cat(logits)}, {"labels", at::cat(labels)}});
  if (!std::isfinite(counts.loss())) {
    throw DivergedError(concat("the loss of these weights on the test set is ", counts.loss(),
                               ": they come from a run that diverged; use an earlier checkpoint"));
  }
  return counts;
}

double run_single_step(const config::Config& config, const SingleStepOptions& options) {
  check_output("--out", options.out, {options.config_file, options.weights, options.batch, config.model.weights});
  const Setup setup = make_setup(config);
  Composition composition = composition_for(setup);
  const fs::path weights = options.weights.empty() ? fs::path(config.model.weights) : options.weights;
  if (!weights.empty()) load_weights(composition, weights);
  const auto batch = options.batch.empty() ? first_training_batch(setup) : read_batch(options.batch, setup.model);

  TrainStep step(composition, step_options(setup));
  const auto gradients = step.compute_gradients(batch, 0, composition.plan.chunks, {.keep_logits = true});
  TensorMap out{{"loss", at::full({}, gradients.stats.loss, at::kDouble)}, {"logits", gradients.logits}};
  for (const auto& [name, gradient] : gradient_tensors(composition))
    out["grad/" + name] = gradient.div(gradients.divisor);
  step.update_weights(lr_schedule(setup).at(0), gradients.divisor);
  for (const auto& [name, tensor] : parameter_tensors(composition)) out["param/" + name] = tensor;
  for (const auto& [name, tensor] : buffer_tensors(composition)) out["buffer/" + name] = tensor;
  write_safetensors(options.out, out);
  if (!std::isfinite(gradients.stats.loss)) {
    throw DivergedError(
        concat("the loss of this step is ", gradients.stats.loss, "; what it computed is in ", options.out.string()));
  }
  return gradients.stats.loss;
}

}  // namespace sluice::train
