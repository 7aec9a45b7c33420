#include <memory>

#include "app/commands.h"
#include "app/options.h"
#include "core/concat.h"
#include "core/text.h"
#include "train/one_shot.h"

namespace sluice::app {
namespace {

struct EvalArguments {
  ConfigArguments config;
  OutputArguments output;
  train::EvaluationOptions evaluation;
};

void run(const EvalArguments& arguments) {
  const train::EvalCounts counts = train::run_evaluation(arguments.config.load(), arguments.evaluation);
  arguments.output.print(
      {{"loss", counts.loss()},
       {"top1", counts.top1_percent()},
       {"top5", counts.top5_percent()},
       {"samples", counts.targets}},
      concat("top-1 ", fixed(counts.top1_percent(), 2), " %  top-5 ", fixed(counts.top5_percent(), 2), " %  loss ",
             fixed(counts.loss(), 4), "  on ", counts.targets, " targets"));
}

}  // namespace

void add_eval(CLI::App& app) {
  CLI::App* command = app.add_subcommand("eval", "Evaluate a checkpoint or weights file on the whole test set");
  const auto arguments = std::make_shared<EvalArguments>();
  arguments->config.add_to(*command);
  auto* source = command->add_option_group("source");
  source
      ->add_option("--checkpoint", arguments->evaluation.checkpoint,
                   "A run directory (its newest checkpoint) or a checkpoints/step-N")
      ->type_name("DIR")
      ->check(not_empty);
  source
      ->add_option("--weights", arguments->evaluation.weights,
                   "A safetensors file with the model's public parameter names")
      ->type_name("FILE")
      ->check(not_empty);
  source->require_option(1);
  command->add_option("--logits", arguments->evaluation.logits, "Write {logits, labels} in data order as safetensors")
      ->type_name("FILE")
      ->check(not_empty);
  arguments->output.add_to(*command);
  command->callback([arguments] {
    arguments->evaluation.config_file = arguments->config.file;
    run(*arguments);
  });
}

}  // namespace sluice::app
