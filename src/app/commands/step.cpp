#include <memory>

#include "app/commands.h"
#include "app/options.h"
#include "core/concat.h"
#include "train/study/one_shot.h"

namespace sluice::app {
namespace {

struct StepArguments {
  ConfigArguments config;
  OutputArguments output;
  train::SingleStepOptions step;
};

void run_step_command(const StepArguments& arguments) {
  const double loss = train::run_single_step(arguments.config.load(), arguments.step);
  const std::string out = arguments.step.out.string();
  arguments.output.print({{"loss", loss}, {"out", out}}, concat("loss ", loss, ", written to ", out));
}

}  // namespace

void add_step(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("step",
                         "Run one training step and write loss, logits, gradients and parameters, for comparison with "
                         "another framework");
  const auto arguments = std::make_shared<StepArguments>();
  arguments->config.add_to(*command);
  command
      ->add_option("--weights", arguments->step.weights,
                   "A safetensors file, or a folder or index of several; default: model.weights, or random weights")
      ->type_name("FILE")
      ->check(not_empty);
  command
      ->add_option("--batch", arguments->step.batch,
                   "A safetensors file with inputs and targets; default: the first training batch")
      ->type_name("FILE")
      ->check(not_empty);
  command->add_option("--out", arguments->step.out, "The safetensors file to write")
      ->type_name("FILE")
      ->check(not_empty)
      ->required();
  arguments->output.add_to(*command);
  command->callback([arguments] {
    arguments->step.config_file = arguments->config.file;
    run_step_command(*arguments);
  });
}

}  // namespace sluice::app
