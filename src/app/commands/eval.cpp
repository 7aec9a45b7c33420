#include <memory>
#include <string>

#include "app/commands.h"
#include "app/options.h"
#include "core/concat.h"
#include "core/text.h"
#include "train/study/one_shot.h"

namespace sluice::app {
namespace {

struct EvalArguments {
  ConfigArguments config;
  OutputArguments output;
  train::EvaluationOptions evaluation;
};

void run_eval_command(const EvalArguments& arguments) {
  const train::Evaluation found = train::run_evaluation(arguments.evaluation);
  const std::string checkpoint = found.checkpoint.string();
  nlohmann::ordered_json json;
  std::string text;
  if (!checkpoint.empty()) {
    json["checkpoint"] = checkpoint;
    json["step"] = found.step;
    text = concat("checkpoint ", checkpoint, ": ");
  }
  json["loss"] = found.sums.loss();
  for (const Score& score : found.scores) {
    if (!score.is_known(found.sums)) continue;
    const double value = score.of(found.sums);
    json[score.name] = value;
    text += concat(score.title, " ", fixed(value, 2), score.is_percent ? " %  " : "  ");
  }
  json["samples"] = found.samples;
  json["targets"] = found.sums.targets;
  arguments.output.print(json,
                         concat(text, "loss ", fixed(found.sums.loss(), 4), "  on ", found.sums.targets, " targets"));
}

}  // namespace

void add_eval(CLI::App& app) {
  CLI::App* command = app.add_subcommand("eval", "Evaluate a checkpoint or weights file on the test set");
  const auto arguments = std::make_shared<EvalArguments>();
  arguments->config.add_to(*command, /*required=*/false);
  command->get_option("CONFIG")->description("Configuration file (TOML); default: the configuration of the checkpoint");
  auto* source = command->add_option_group("source");
  source
      ->add_option("--checkpoint", arguments->evaluation.checkpoint,
                   "A run directory (its newest checkpoint), or one of its checkpoints/step-N")
      ->type_name("DIR")
      ->check(not_empty);
  source
      ->add_option("--weights", arguments->evaluation.weights,
                   "All weights: a safetensors file, or a folder or index of several")
      ->type_name("FILE")
      ->check(not_empty);
  source->require_option(1);
  command
      ->add_option("--logits", arguments->evaluation.logits,
                   "Safetensors file to write, with the tensors logits and labels in data order")
      ->type_name("FILE")
      ->check(not_empty);
  command
      ->add_option("--predictions", arguments->evaluation.predictions,
                   "JSON file to write, with the answer to each question, for SQuAD's own script")
      ->type_name("FILE")
      ->check(not_empty);
  command
      ->add_flag("--ema", arguments->evaluation.takes_average,
                 "Evaluate the averaged weights of a run with train.ema_decay instead of its weights")
      ->excludes("--weights");
  command->add_flag("--validation", arguments->evaluation.of_validation,
                    "Evaluate on the samples that data.validation holds out instead of the test set");
  arguments->output.add_to(*command);
  command->callback([arguments] {
    arguments->evaluation.config_file = arguments->config.file;
    arguments->evaluation.sets = arguments->config.sets;
    run_eval_command(*arguments);
  });
}

}  // namespace sluice::app
