#include <memory>
#include <string>

#include "app/commands.h"
#include "app/options.h"
#include "core/concat.h"
#include "core/text.h"
#include "train/study/merge.h"

namespace sluice::app {
namespace {

struct MergeArguments {
  std::string from, out;
  OutputArguments output;
};

void run_merge_command(const MergeArguments& arguments) {
  const train::MergedWeights merged = train::merge_adapters(arguments.from, arguments.out);
  const std::string checkpoint = merged.checkpoint.string();
  arguments.output.print(
      {{"checkpoint", checkpoint}, {"step", merged.step}, {"adapters", merged.adapters}, {"out", arguments.out}},
      concat("merged ", counted(merged.adapters, "adapter"), " of ", checkpoint, " into ", arguments.out,
             "/model.safetensors"));
}

}  // namespace

void add_merge(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "merge", "Add the LoRA adapters of a checkpoint to its weights, and write the weights without adapters");
  const auto arguments = std::make_shared<MergeArguments>();
  command
      ->add_option("DIR", arguments->from, "A run directory (its newest checkpoint), or one of its checkpoints/step-N")
      ->required()
      ->check(not_empty);
  command
      ->add_option("--out", arguments->out,
                   "Folder for model.safetensors and the files that the checkpoint has beside it, such as config.json")
      ->type_name("FOLDER")
      ->required()
      ->check(not_empty);
  arguments->output.add_to(*command);
  command->callback([arguments] { run_merge_command(*arguments); });
}

}  // namespace sluice::app
